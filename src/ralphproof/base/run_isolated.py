"""Entry point that runs a module of this package in an isolated interpreter.

Usage: `python -I run_isolated.py FOLDER ... -- MODULE [ARGUMENT ...]`.

`interpreter.module` makes this command line. The folders are where packages are installed.
"""

import os
import sys

if __name__ == "__main__":
    end = sys.argv.index("--")
    folders, name = sys.argv[1:end], sys.argv[end + 1]
    del sys.argv[1 : end + 2]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.insert(0, root)
    from ralphproof.base.interpreter import is_standard_path  # of this package, whichever others are installed

    # Nothing else: a link in `site-packages` may lead to a project.
    sys.path[:] = list(dict.fromkeys((*filter(is_standard_path, sys.path), *folders, root)))
    __import__(name)
    sys.exit(sys.modules[name].main())
