"""The demo: a digit classifier and a low-pass filter on real data, fused, on the CPU and on a GPU if there is one.

Prints what ran where, the error against float64 and the time beside NumPy and SciPy; saves out/demo.png.
"""

import os
import pathlib
import time

import mathfuse as mf
import matplotlib
import numpy as np
import pywt
import scipy.fft
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

console = Console(width=None if os.isatty(1) else 140)


def median_ms(call, repeat=15):
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * sorted(times)[repeat // 2]


def worst(got, want):
    """The largest error, relative to the largest value."""
    return np.abs(np.asarray(got, np.float64) - want).max() / np.abs(want).max()


def devices():
    """(name, to the device, back to NumPy, wait) for the CPU and, with PyTorch or CuPy, the GPU."""
    yield "CPU", lambda x: x, lambda x: x, lambda: None
    try:
        import torch

        if torch.cuda.is_available():
            yield (torch.cuda.get_device_name(), lambda x: torch.asarray(x, device="cuda"), lambda x: x.cpu().numpy(),
                   torch.cuda.synchronize)  # fmt: skip
            return
    except ImportError:
        pass
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount():
            name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
            yield name, cupy.asarray, lambda x: x.get(), cupy.cuda.Device().synchronize
    except Exception:  # no CuPy, or no driver beneath it
        console.print("[dim]No GPU that PyTorch or CuPy can use: the CPU only.[/dim]")


# ---- a two-layer classifier ----


@mf.fuse
def classify(x, w1, b1, w2, b2):
    """Probabilities of the ten digits."""
    hidden = mf.matmul(x, w1, bias=b1, activation="relu")
    return mf.softmax(hidden @ w2 + b2)


def classify_numpy(x, w1, b1, w2, b2):
    z = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def trained():
    """scikit-learn's handwritten digits, and the weights of its own classifier trained on half of them."""
    digits = load_digits()
    split = train_test_split(digits.data / 16, digits.target, digits.images, test_size=0.5, random_state=0)
    x_train, x_test, y_train, y_test, _, images = split
    model = MLPClassifier((128,), max_iter=400, random_state=0).fit(x_train, y_train)
    (w1, w2), (b1, b2) = model.coefs_, model.intercepts_
    return [np.ascontiguousarray(a, np.float32) for a in (x_test, w1, b1, w2, b2)], y_test, images


def digits(table):
    arrays, labels, images = trained()
    exact = classify_numpy(*(a.astype(np.float64) for a in arrays))
    for name, to_device, to_host, wait in devices():
        there = [to_device(a) for a in arrays]
        p = to_host(classify(*there))
        accuracy = (p.argmax(axis=-1) == labels).mean()
        plan = mf.plan(classify, *there)
        console.rule(f"digits on {name}")
        console.print(classify.explain(*there), markup=False, highlight=False)

        def run(plan=plan, there=there, wait=wait):
            plan.run(*there)
            wait()

        table.add_row("digits", name, f"accuracy {accuracy:.1%}", f"{worst(p, exact):.1e}", f"{median_ms(run):.3f}",
                      f"{median_ms(lambda: classify_numpy(*arrays)):.3f} (NumPy)")  # fmt: skip
    return p, labels, images


# ---- a low-pass filter ----


@mf.fuse
def low_pass(x, gain):
    """Back from a spectrum that `gain` has multiplied."""
    return np.fft.irfft(np.fft.rfft(x) * gain, n=x.shape[-1])


def low_pass_scipy(x, gain):
    return scipy.fft.irfft(scipy.fft.rfft(x) * gain, n=x.shape[-1])


def heartbeat(table):
    """PyWavelets' recorded electrocardiogram, in overlapping windows."""
    signal = pywt.data.ecg().astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(signal, 512)
    frequency = np.fft.rfftfreq(windows.shape[-1])
    gain = (1 / (1 + (frequency / 0.06) ** 8)).astype(np.float32)
    exact = low_pass_scipy(windows.astype(np.float64), gain.astype(np.float64))
    for name, to_device, to_host, wait in devices():
        there = [to_device(np.ascontiguousarray(a)) for a in (windows, gain)]
        y = to_host(low_pass(*there))
        plan = mf.plan(low_pass, *there)
        console.rule(f"low-pass on {name}")
        console.print(low_pass.explain(*there), markup=False, highlight=False)

        def run(plan=plan, there=there, wait=wait):
            plan.run(*there)
            wait()

        table.add_row("low-pass", name, f"{len(windows)} windows of {windows.shape[-1]}", f"{worst(y, exact):.1e}",
                      f"{median_ms(run):.3f}", f"{median_ms(lambda: low_pass_scipy(windows, gain)):.3f} (SciPy)")  # fmt: skip
    return windows, y


def picture(path, probabilities, labels, images, windows, smooth):
    figure = plt.figure(figsize=(10, 6), layout="constrained")
    top, bottom = figure.subfigures(2, 1)
    for i, axes in enumerate(top.subplots(2, 8).flat):
        axes.imshow(images[i], cmap="gray_r")
        guess = int(probabilities[i].argmax())
        axes.set_title(f"{guess} ({probabilities[i, guess]:.0%})", fontsize=8, color="green" if guess == labels[i] else "red")
        axes.axis("off")
    axes = bottom.subplots()
    axes.plot(windows[0], color="0.7", label="recorded")
    axes.plot(smooth[0], color="C3", label="low-pass")
    axes.set(title="electrocardiogram", xlabel="sample")
    axes.legend()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)


def main():
    console.print(mf.info(), markup=False, highlight=False)
    table = Table(title="mathfuse on real data")
    for column in ("what", "where", "result", "error against float64", "mathfuse, ms", "beside it, ms"):
        table.add_column(column)
    probabilities, labels, images = digits(table)
    windows, smooth = heartbeat(table)
    console.rule("summary")
    console.print(table)
    path = pathlib.Path("out/demo.png")
    picture(path, probabilities, labels, images, windows, smooth)
    console.print(f"picture: {path}")


if __name__ == "__main__":
    main()
