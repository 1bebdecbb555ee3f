"""`python -m docs.website`: builds the site, strictly; with `--serve`, serves it and follows changes of the pages."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from docs.website.check import faults
from docs.website.gallery import write_gallery
from docs.website.notebook import write
from docs.website.reference import write_reference
from docs.website.stage import BUILD, PAGES, ROOT, configuration, places, stage, write_comparisons


def main() -> int:
    """Stage the pages, make what is made, build, check; `--serve` makes no notebook or gallery that is there."""
    parser = argparse.ArgumentParser(prog="python -m docs.website", description=__doc__)
    parser.add_argument(
        "--serve",
        action="store_true",
        help="serve the site, and build pages again when they change",
    )
    is_served = parser.parse_args().serve
    start = time.perf_counter()

    def said(what: str) -> None:
        print(f"docs: {what} ({time.perf_counter() - start:.0f} s)", flush=True)

    if not is_served:
        shutil.rmtree(BUILD, ignore_errors=True)
    stage()
    write_reference()
    write_comparisons()
    shutil.copytree(Path(__file__).parent / "assets", PAGES / "assets", dirs_exist_ok=True)
    said("pages")
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.py")):
        if not (PAGES / "notebooks" / f"{path.stem}.md").exists():
            write(path, PAGES / "notebooks")
            said(f"notebook {path.stem}")
    if not (PAGES / "gallery.md").exists():
        write_gallery()
        said("gallery")
    zensical, config = str(Path(sys.executable).with_name("zensical")), str(configuration())
    if is_served:
        return serve([zensical, "serve", "-f", config])
    subprocess.run([zensical, "build", "--strict", "--clean", "-f", config], check=True)  # noqa: S603
    shutil.rmtree(ROOT / "site", ignore_errors=True)
    (BUILD / "site").rename(ROOT / "site")
    found = list(faults(ROOT / "site"))
    print(*found, sep="\n")
    said(f"built, {len(found)} faults; open site/index.html through make docs-serve")
    return bool(found)


def serve(command: list[str]) -> int:
    """Serve the staged pages until it is stopped; a page that changes is staged again within a second."""
    with subprocess.Popen(command, cwd=BUILD) as server:  # noqa: S603
        try:
            seen = newest()
            while server.poll() is None:
                time.sleep(1)
                if (now := newest()) != seen:
                    seen = now
                    try:
                        stage()
                    except ValueError as error:
                        print(error, file=sys.stderr)
        except KeyboardInterrupt:
            server.terminate()
    return 0


def newest() -> float:
    """The time of the last change of a page of the repository."""
    return max((ROOT / origin).stat().st_mtime for origin in places())


if __name__ == "__main__":
    sys.exit(main())
