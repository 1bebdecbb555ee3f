"""`python -m docs.website`: builds the site, strictly; with `--serve`, serves it and follows changes of the pages."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from docs.website import gallery, notebook
from docs.website.check import faults
from docs.website.kept import kept, sources
from docs.website.reference import write_reference
from docs.website.stage import BUILD, PAGES, ROOT, configuration, places, stage


def main() -> int:
    """Stage the pages, make what is made, build, check."""
    parser = argparse.ArgumentParser(prog="python -m docs.website", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="serve the site, and build pages again when they change")
    args = parser.parse_args()
    start = time.perf_counter()

    def said(what: str) -> None:
        print(f"docs: {what} ({time.perf_counter() - start:.0f} s)", flush=True)

    shutil.rmtree(BUILD, ignore_errors=True)
    try:
        stage()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    write_reference()
    shutil.copytree(Path(__file__).parent / "assets", PAGES / "assets", dirs_exist_ok=True)
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.py")):
        shutil.copytree(notebook.kept_run(path), PAGES / "notebooks", dirs_exist_ok=True)
        said(f"notebook {path.stem}")
    gallery.write_gallery(kept("gallery", gallery.drawn, sources(gallery.RESULTS)))
    said("gallery")
    config = configuration()
    zensical = [str(Path(sys.executable).with_name("zensical"))]
    if args.serve:
        return serve([*zensical, "serve", "-f", str(config)])
    shutil.rmtree(ROOT / "site", ignore_errors=True)
    built = subprocess.run([*zensical, "build", "--strict", "--clean", "-f", str(config)], check=False)  # noqa: S603
    if built.returncode:
        return built.returncode
    (BUILD / "site").rename(ROOT / "site")
    said("built")
    found = list(faults(ROOT / "site"))
    for fault in found:
        print(fault)
    number = len(list((ROOT / "site").rglob("*.html")))
    said(f"{number} pages checked, {len(found)} faults; open site/index.html through make docs-serve")
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
