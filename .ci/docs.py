"""API pages of every module, by pdoc: python .ci/docs.py OUT_FOLDER. Any warning is an error."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import warnings
from pathlib import Path

import pdoc

import mlm_lab


def main(out: Path) -> int:
    vars(mlm_lab).update({name: getattr(mlm_lab, name) for name in mlm_lab.__all__})  # imported when asked for, and pdoc does not ask
    names = sys.argv[2:] or [f"mlm_lab.{part.name}" for part in pkgutil.iter_modules(mlm_lab.__path__) if part.name != "__main__"]
    for found in pkgutil.walk_packages(mlm_lab.__path__, "mlm_lab."):
        module = None if found.name.endswith("__main__") else importlib.import_module(found.name)
        for part in vars(module).values() if module else ():
            if isinstance(part, type) and issubclass(part, tuple) and hasattr(part, "_fields"):
                part.__new__.__annotations__.clear()  # pdoc does not find what its names mean there; the fields say their types
    pdoc.render.configure(docformat="google", show_source=False, search=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pdoc.pdoc("mlm_lab", *names, output_directory=out)
    found = sorted({str(warning.message) for warning in caught if warning.category in (UserWarning, RuntimeWarning)})
    print(f"{len(list(out.rglob('*.html')))} pages in {out}", *(f"warning: {message}" for message in found), sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
