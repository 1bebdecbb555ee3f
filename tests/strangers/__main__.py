"""Runs the laws over published families, and writes docs/strangers.md.

    python -m tests.strangers [--only NAME …] [--laws LAW …] [--show NAME LAW] [--site FOLDER]

--only, --laws: these families and laws; the page keeps what was measured of the others.
--show: print the example of a fault.
--site: a folder of packages that are not installed, as `pip install --no-deps --target FOLDER` makes it.
Families whose library is not there are on the page as "not installed".
"""

import argparse
import logging
import os
import sys
import time
import warnings
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> int:
    """Measure families; 1 where a fault could not be shown by its example."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    from strangers.families import FAMILIES
    from strangers.laws import LAWS
    from strangers.others import OTHERS

    names = [*FAMILIES, *OTHERS]
    parser = argparse.ArgumentParser(prog="python -m tests.strangers")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--laws", nargs="+", choices=LAWS, default=list(LAWS), metavar="LAW")
    parser.add_argument("--show", nargs=2, metavar=("NAME", "LAW"))
    parser.add_argument("--site", default="", metavar="FOLDER")
    args = parser.parse_args()
    if args.site:
        sys.path.append(args.site)
    import torch
    from strangers.measure import measured
    from strangers.page import read_results, write_page, write_results

    torch.set_num_threads(1)
    results = read_results()
    if args.show:
        name, law = args.show
        print(results["families"][name]["tiny"][law]["example"])
        return 0
    lost = 0
    for name in args.only:
        started = time.process_time()
        row = {}
        sizes = ["tiny"]
        if name in FAMILIES and FAMILIES[name].published:
            sizes.append("published")
        try:
            for size in sizes:
                before = results["families"].get(name, {}).get(size, {})
                row[size] = before | measured(name, size, args.laws)
        except ImportError as error:
            row = {"not installed": str(error)}
        except KeyError as error:
            raise SystemExit(f"{name}: {error} has no example; write one in examples.py") from error
        seconds = time.process_time() - started
        broken = {
            law: cell["by_hand"]
            for law, cell in row.get("tiny", {}).items()
            if cell["status"] in ("broken", "not reproduced")
        }
        wrong = [
            f"{size} {law}"
            for size in row
            if size in sizes
            for law, cell in row[size].items()
            if cell["status"] == "not reproduced"
        ]
        lost += len(wrong)
        print(f"{name}: {seconds:.1f} s, {row.get('not installed') or broken}", *wrong, flush=True)
        results["families"][name] = row
        if len(args.laws) == len(LAWS):
            results["seconds"][name] = round(seconds, 1)
        write_results(results)
    write_page(results)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
