"""The program of the keeper process: `python -I -S .../process/__main__.py FD`, where FD is its control socket."""

import sys

if __name__ == "__main__":
    # At the end of the path: nothing that lies beside the package may stand in for a standard module.
    sys.path.append(__file__.rsplit("/", 3)[0])
    from ralphproof.process.keeper import serve

    serve(int(sys.argv[1]))
