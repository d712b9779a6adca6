"""Solves many small systems at once, some of them singular, and looks at which failed."""

import mathfuse as mf
import numpy as np


def main():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((1000, 8, 8))
    b = rng.standard_normal((1000, 8, 1))
    a[17] = 0
    x, info = mf.linalg.solve(a, b, check=False)
    failed = np.flatnonzero(info)
    good = np.delete(np.arange(len(a)), failed)
    print("failed:", failed, "at pivot", info[failed])
    print("largest residual of the others:", np.abs(a[good] @ x[good] - b[good]).max())
    try:
        mf.linalg.solve(a, b)
    except mf.linalg.LinAlgError as error:
        print("with check=True:", error)


if __name__ == "__main__":
    main()
