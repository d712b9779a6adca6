"""Plans and compiles for a GPU that need not be here, and shows what would run there."""

import mathfuse as mf


@mf.fuse
def layer(x, w, b, r):
    return mf.tanh(x @ w + b) + r


def main():
    m, n, k = 8192, 512, 512
    specs = [mf.spec((m, k), "bfloat16"), mf.spec((k, n), "bfloat16"), mf.spec(n, "bfloat16"), mf.spec((m, n), "bfloat16")]
    for target in ("cpu", "sm_80", "sm_90a", "sm_100a"):
        plan = mf.plan(layer, *specs, target=target)
        sizes = {name: len(cubin) for name, cubin in plan.cubins().items()}
        print(f"== {target}: {plan.launches} launches, {plan.workspace} bytes of workspace, kernels {sizes}")
        print(plan.explain())


if __name__ == "__main__":
    main()
