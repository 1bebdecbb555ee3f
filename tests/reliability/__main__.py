"""Injects faults, and writes what was survived to docs/reliability.md.

    python -m tests.reliability [--only NAME …] [--quick]

--only: these rows; the page keeps what was measured of the others. --quick: a few cases of the rows that the suite
tries, and no page.
Nothing is trained in this process: each case runs in processes that are forked from it.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> int:
    """Run rows; 1 where a case was not survived by ours."""
    warnings.filterwarnings("ignore")
    from reliability.page import write_page, write_row
    from reliability.rows import ROWS, quick

    parser = argparse.ArgumentParser(prog="python -m tests.reliability")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    from reliability.forked import preload, write_data

    place = Path(tempfile.mkdtemp(prefix="seqkit-reliability-"))
    lost = 0
    try:
        write_data(place)
        preload(place)
        for name in args.only:
            started = time.monotonic()
            cases = quick(name, place) if args.quick else ROWS[name].cases(place)
            outcomes = [tried(case, place) for case in cases]
            seconds = time.monotonic() - started
            print(
                f"{name}: {sum(not o['lost'] for o in outcomes)} of {len(outcomes)} in {seconds:.0f} s",
                flush=True,
            )
            lost += sum(bool(o["lost"]) for o in outcomes) * (not ROWS[name].stock)
            if outcomes and not args.quick:
                write_row(name, outcomes, seconds)
                write_page()
    finally:
        shutil.rmtree(place)
    return 1 if lost else 0


def tried(case, place: Path) -> dict[str, str | bool]:
    """Name of a case, why it was not survived (empty: it was), and whether nothing was said."""
    from reliability.forked import Silent

    folder = Path(tempfile.mkdtemp(dir=place))
    outcome: dict[str, str | bool] = {"name": case.name, "lost": "", "silent": False}
    try:
        case.work(folder)
    except Exception as error:
        outcome["lost"] = (
            " ".join(f"{error}".replace(str(folder), "").replace(str(place), "").split()) or "?"
        )
        outcome["silent"] = isinstance(error, Silent)
        print(f"  {case.name}: {outcome['lost']}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
