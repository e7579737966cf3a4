"""Runs a module of this package: `python -I isolated.py FOLDER ... -- MODULE [ARGUMENT ...]`.

`interpreter.module` makes this command line. The folders are where more packages are installed.
"""

import os
import sys

if __name__ == "__main__":
    end = sys.argv.index("--")
    folders, name = sys.argv[1:end], sys.argv[end + 1]
    del sys.argv[1 : end + 2]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path.insert(0, root)
    import ralphproof  # noqa: F401 this one, whichever others are installed; it imports nothing

    del sys.path[0]
    sys.path += [folder for folder in (*folders, root) if folder not in sys.path]
    __import__(name)
    sys.exit(sys.modules[name].main())
