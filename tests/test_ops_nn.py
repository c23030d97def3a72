"""nn.functional: what the tests made from the records cannot hold.

Values come from mathematics, NumPy and SciPy. A composite's array function is held to its body, kernels to NumPy, the meta
device to the CPU; derivatives to finite differences, twice.
"""

import itertools
import math
import warnings

import numpy as np
import pytest
import scipy.signal
import scipy.special as sp

import rushlight as torch
from rushlight.autograd import gradcheck, gradgradcheck
from rushlight.ops import loss_class, nn_common, norm

F = torch.nn.functional
rng = np.random.default_rng(7)


def t(*shape, low=None, high=None, dtype="float64", requires_grad=True):
    a = rng.standard_normal(shape) if low is None else rng.uniform(low, high, shape)
    return torch.tensor(a.astype(dtype)).requires_grad_(requires_grad)


def ints(high, *shape):
    return torch.tensor(rng.integers(0, high, shape))


def numpy(x):
    return x.detach().numpy()


def close(a, b, tol=1e-10):
    np.testing.assert_allclose(numpy(a) if hasattr(a, "detach") else a, numpy(b) if hasattr(b, "detach") else b, rtol=tol, atol=tol)


# --- values ---------------------------------------------------------------------------------------------------------
def test_softmax_and_log_softmax_are_scipys():
    for shape, dim in (((4, 5), 1), ((3, 4, 5), 0), ((3, 400), -1), ((7,), 0)):
        x = t(*shape)
        close(F.softmax(x, dim), sp.softmax(numpy(x), dim))
        close(F.log_softmax(x, dim), sp.log_softmax(numpy(x), dim))
    assert F.softmax(torch.tensor([1.0, 2.0]), 0, dtype=torch.float64).dtype is torch.float64
    assert torch.softmax(torch.tensor([1.0, 2.0]), 0, torch.float64).dtype is torch.float64
    assert F.softmax(torch.zeros(0, 3), 1).shape == (0, 3)
    assert F.softmax(torch.tensor(5.0), 0).item() == 1


def test_linear():
    x, w, b = t(2, 3, 4), t(5, 4), t(5)
    close(F.linear(x, w, b), numpy(x) @ numpy(w).T + numpy(b))
    close(F.linear(x, w[0]), numpy(x) @ numpy(w)[0])
    with pytest.raises(RuntimeError, match=r"6x4 and 3x5"):
        F.linear(x, torch.zeros(5, 3, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="dtype"):
        F.linear(x, torch.zeros(5, 4))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_conv_is_correlation(dims):
    x, w = t(1, 1, *(6, 7, 5)[:dims]), t(1, 1, *(2, 3, 2)[:dims])
    conv = getattr(F, f"conv{dims}d")
    want = scipy.signal.correlate(numpy(x)[0, 0], numpy(w)[0, 0], "valid", "direct")
    close(conv(x, w)[0, 0], want)
    close(conv(x[0], w)[0], want)                                       # without a batch
    full = scipy.signal.convolve(numpy(x)[0, 0], numpy(w)[0, 0], "full", "direct")
    close(getattr(F, f"conv_transpose{dims}d")(x, w)[0, 0], full)
    assert conv(x, w, padding="same").shape == x.shape
    close(conv(x, w, padding="valid"), conv(x, w))


def test_groups_are_separate_convolutions():
    x, w, b = t(2, 4, 6, 6), t(6, 2, 3, 3), t(6)
    whole = F.conv2d(x, w, b, groups=2, padding=1, stride=2)
    parts = [F.conv2d(x[:, 2 * g:2 * g + 2], w[3 * g:3 * g + 3], b[3 * g:3 * g + 3], padding=1, stride=2) for g in range(2)]
    close(whole, torch.cat(parts, 1))


def log_rows(x):
    return sp.log_softmax(x, 1)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("rows", [6, 300])
def test_cross_entropy_by_its_definition(rows, smoothing):
    x, y, w = t(rows, 5), ints(5, rows), t(5, low=0.5, high=2, requires_grad=False)
    y[1] = -100
    lp, target = log_rows(numpy(x)), y.numpy()
    keep = target != -100
    soft = np.full((rows, 5), smoothing / 5)
    soft[np.arange(rows)[keep], target[keep]] += 1 - smoothing
    for weight in (None, w):
        k = np.ones(5) if weight is None else numpy(weight)
        losses = -(soft * k * lp).sum(1) * keep
        got = F.cross_entropy(x, y, weight, reduction="none", label_smoothing=smoothing)
        close(got, losses)
        close(F.cross_entropy(x, y, weight, label_smoothing=smoothing), losses.sum() / k[target[keep]].sum())
        close(F.cross_entropy(x, y, weight, reduction="sum", label_smoothing=smoothing), losses.sum())
        q = torch.tensor(sp.softmax(rng.standard_normal((rows, 5)), 1))
        mixed = numpy(q) * (1 - smoothing) + smoothing / 5
        close(F.cross_entropy(x, q, weight, label_smoothing=smoothing), -(mixed * k * lp).sum() / rows)


def test_cross_entropy_of_images_is_that_of_their_pixels():
    x, y = t(2, 4, 3, 5), ints(4, 2, 3, 5)
    flat = F.cross_entropy(x.permute(0, 2, 3, 1).reshape(-1, 4), y.reshape(-1))
    close(F.cross_entropy(x, y), flat)
    close(F.nll_loss(F.log_softmax(x, 1), y), flat)


def brute_force_ctc(lp, labels, blank):
    """The sum over all alignments, by enumeration."""
    steps, classes = lp.shape
    total = 0.0
    for path in itertools.product(range(classes), repeat=steps):
        merged = [c for i, c in enumerate(path) if i == 0 or c != path[i - 1]]
        if [c for c in merged if c != blank] == list(labels):
            total += math.exp(sum(lp[i, c] for i, c in enumerate(path)))
    return -math.log(total) if total else math.inf


@pytest.mark.parametrize("labels", [[1], [1, 2], [2, 2], [], [1, 2, 1]])
def test_ctc_loss_sums_over_alignments(labels):
    lp = sp.log_softmax(rng.standard_normal((4, 3)), 1)
    got = F.ctc_loss(torch.tensor(lp)[:, None], torch.tensor([labels or [0]]), (4,), (len(labels),), reduction="none")
    close(got, [brute_force_ctc(lp, labels, 0)])


def test_ctc_gradient_through_log_softmax_and_impossible_targets():
    x, y = t(5, 2, 3), torch.tensor([[1, 2], [2, 1]])
    assert gradcheck(lambda x: F.ctc_loss(F.log_softmax(x, 2), y, (5, 4), (2, 1)), (x,))
    long = torch.tensor([[1, 1, 1]])
    lp = F.log_softmax(t(3, 1, 2), 2)
    assert math.isinf(F.ctc_loss(lp, long, (3,), (3,)).item())
    assert F.ctc_loss(lp, long, (3,), (3,), zero_infinity=True).item() == 0


def test_losses_by_their_definitions():
    x, y = t(4, 3), t(4, 3, requires_grad=False)
    a, b = numpy(x), numpy(y)
    e = np.abs(a - b)
    close(F.mse_loss(x, y), (e ** 2).mean())
    close(F.l1_loss(x, y, reduction="sum"), e.sum())
    close(F.smooth_l1_loss(x, y, beta=0.7), np.where(e < 0.7, e * e / 1.4, e - 0.35).mean())
    close(F.huber_loss(x, y, delta=0.7), np.where(e < 0.7, e * e / 2, 0.7 * (e - 0.35)).mean())
    p = t(4, 3, low=0.05, high=0.95)
    q = t(4, 3, low=0, high=1, requires_grad=False)
    close(F.binary_cross_entropy(p, q), -(numpy(q) * np.log(numpy(p)) + (1 - numpy(q)) * np.log1p(-numpy(p))).mean())
    close(F.binary_cross_entropy_with_logits(x, q), F.binary_cross_entropy(x.sigmoid(), q))
    close(F.kl_div(x, q, reduction="batchmean"), (sp.xlogy(numpy(q), numpy(q)) - numpy(q) * a).sum() / 4)
    s = torch.tensor([[1.0, -1.0, 1.0]] * 4, dtype=torch.float64)
    close(F.soft_margin_loss(x, s), np.log1p(np.exp(-numpy(s) * a)).mean())
    close(F.multi_margin_loss(x, torch.tensor([0, 1, 2, 0])),
          np.mean([sum(max(0, 1 - r[k] + v) for j, v in enumerate(r) if j != k) / 3 for r, k in zip(a, (0, 1, 2, 0))]))
    close(F.multilabel_margin_loss(x[:1], torch.tensor([[2, -1, 0]])), sum(max(0, 1 - a[0, 2] + a[0, j]) for j in (0, 1)) / 3)
    big = torch.tensor([1000.0, -1000.0], dtype=torch.float64)
    close(F.binary_cross_entropy_with_logits(big, torch.tensor([1.0, 0.0], dtype=torch.float64)), 0.0)


def test_norms_normalise():
    x = t(6, 4, 5, 3)
    y = numpy(F.layer_norm(x, (5, 3)))
    close(y.mean((2, 3)), np.zeros((6, 4)))
    a = numpy(x)
    close(y, (a - a.mean((2, 3), keepdims=True)) / np.sqrt(a.var((2, 3), keepdims=True) + 1e-5))
    g = a.reshape(6, 2, -1)
    close(F.group_norm(x, 2), ((g - g.mean(2, keepdims=True)) / np.sqrt(g.var(2, keepdims=True) + 1e-5)).reshape(a.shape))
    close(F.instance_norm(x), (a - a.mean((2, 3), keepdims=True)) / np.sqrt(a.var((2, 3), keepdims=True) + 1e-5))
    close(F.rms_norm(x, (3,), eps=1e-3), a / np.sqrt((a * a).mean(3, keepdims=True) + 1e-3))


@pytest.mark.parametrize("shape", [(8, 3), (8, 3, 16)])
def test_batch_norm_statistics(shape):
    x = t(*shape)
    m, v = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    axes = (0, *range(2, len(shape)))
    y = F.batch_norm(x, m, v, training=True, momentum=0.25)
    a = numpy(x)
    keep = [1 if i != 1 else 3 for i in range(len(shape))]
    close(y, (a - a.mean(axes).reshape(keep)) / np.sqrt(a.var(axes).reshape(keep) + 1e-5))
    close(m, 0.25 * a.mean(axes))
    close(v, 0.75 + 0.25 * a.var(axes, ddof=1))
    before = numpy(m).copy()
    close(F.batch_norm(x, m, v), (a - before.reshape(keep)) / np.sqrt(numpy(v).reshape(keep) + 1e-5))
    close(m, before)


def test_pooling_by_windows():
    x = t(2, 3, 6, 6)
    a = numpy(x).reshape(2, 3, 3, 2, 3, 2)
    close(F.max_pool2d(x, 2), a.max((3, 5)))
    close(F.avg_pool2d(x, 2), a.mean((3, 5)))
    close(F.adaptive_avg_pool2d(x, (3, None))[..., ::2], numpy(x).reshape(2, 3, 3, 2, 6).mean(3)[..., ::2])
    values, index = F.max_pool2d(x, 2, return_indices=True)
    close(numpy(x).reshape(2, 3, -1)[np.arange(2)[:, None, None], np.arange(3)[:, None], index.numpy().reshape(2, 3, -1)], numpy(values).reshape(2, 3, -1))
    back = F.max_unpool2d(values, index, 2)
    close(F.max_pool2d(back.abs(), 2), values.abs())
    close(F.lp_pool2d(x.abs(), 3, 2), (np.abs(a) ** 3).sum((3, 5)) ** (1 / 3))


def test_embedding_rows_and_padding():
    w = t(6, 3)
    i = torch.tensor([[0, 2], [2, 5]])
    y = F.embedding(i, w, padding_idx=0)
    close(y, numpy(w)[i.numpy()])
    y.sum().backward()
    close(w.grad, np.array([0, 0, 2, 0, 0, 1.0])[:, None] * np.ones(3))
    w.grad = None
    F.embedding(i, w, scale_grad_by_freq=True).sum().backward()
    close(w.grad, np.array([1, 0, 1, 0, 0, 1.0])[:, None] * np.ones(3))
    v = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    F.embedding(torch.tensor([0, 1]), v, max_norm=1.0)
    close(v, [[0.6, 0.8], [0.3, 0.4]], 1e-6)
    for bad in (6, -1):
        with pytest.raises(IndexError, match="out of range"):
            F.embedding(torch.tensor([bad]), w)


def test_embedding_bags():
    w = t(6, 3)
    i, offsets = torch.tensor([0, 2, 2, 5, 1]), torch.tensor([0, 2, 2])
    rows = numpy(w)[i.numpy()]
    for mode, f in (("sum", np.sum), ("mean", np.mean), ("max", np.max)):
        got = F.embedding_bag(i, w, offsets, mode=mode)
        close(got, np.stack([f(rows[:2], 0), np.zeros(3), f(rows[2:], 0)]))
    close(F.embedding_bag(i, w, offsets, mode="sum", padding_idx=2), np.stack([rows[0], np.zeros(3), rows[3] + rows[4]]))


def test_interpolate():
    ramp = torch.tensor(np.linspace(0, 1, 5))[None, None]
    close(F.interpolate(ramp, 9, mode="linear", align_corners=True)[0, 0], np.linspace(0, 1, 9))
    x = t(1, 2, 3, 4)
    close(F.interpolate(x, scale_factor=2), numpy(x).repeat(2, 2).repeat(2, 3))
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        close(F.interpolate(x, (3, 4), mode=mode), x)
    for mode in ("bilinear", "bicubic"):
        close(F.interpolate(torch.ones(1, 1, 8, 8), (3, 5), mode=mode, antialias=True), np.ones((1, 1, 3, 5)), 1e-6)
    with pytest.raises(ValueError, match="only one of size or scale_factor"):
        F.interpolate(x, 4, 2)
    with pytest.raises(NotImplementedError, match="needs 3D"):
        F.interpolate(x, 4, mode="linear")


def test_grid_sample_of_the_identity_is_the_image():
    x = t(2, 3, 4, 5)
    for align in (False, True):
        grid = F.affine_grid(torch.tensor([[[1.0, 0, 0], [0, 1, 0]]] * 2, dtype=torch.float64), (2, 3, 4, 5), align_corners=align)
        for mode, padding in itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")):
            close(F.grid_sample(x, grid, mode, padding, align), x)
    far = torch.full((2, 1, 1, 2), 9.0, dtype=torch.float64)
    close(F.grid_sample(x, far, align_corners=True), np.zeros((2, 3, 1, 1)))
    close(F.grid_sample(x, far, padding_mode="border", align_corners=True)[..., 0, 0], numpy(x)[..., -1, -1])


def test_attention():
    q, k, v = t(2, 3, 4, 8), t(2, 3, 6, 8), t(2, 3, 6, 5)
    scores = numpy(q) @ numpy(k).swapaxes(-1, -2) / math.sqrt(8)
    close(F.scaled_dot_product_attention(q, k, v), sp.softmax(scores, -1) @ numpy(v))
    mask = torch.tensor(rng.random((4, 6)) < 0.6)
    mask[:, 0] = True
    hidden = np.where(mask.numpy(), scores, -np.inf)
    close(F.scaled_dot_product_attention(q, k, v, mask), sp.softmax(hidden, -1) @ numpy(v))
    causal = np.where(np.tril(np.ones((4, 6), bool)), scores, -np.inf)
    close(F.scaled_dot_product_attention(q, k, v, is_causal=True), sp.softmax(causal, -1) @ numpy(v))
    close(F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
          F.scaled_dot_product_attention(q, k[:, :1].expand(2, 3, 6, 8), v[:, :1].expand(2, 3, 6, 5)))


def test_shuffles_and_blocks():
    x = t(2, 8, 3, 4)
    close(F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), x)
    close(F.channel_shuffle(F.channel_shuffle(x, 2), 4), x)
    columns = F.unfold(x, (2, 3), padding=1)
    w = t(5, 8, 2, 3)
    close(torch.matmul(w.reshape(5, -1), columns).reshape(2, 5, 4, 4), F.conv2d(x, w, padding=1))
    counts = F.fold(torch.ones(1, 4, 9), (4, 4), 2)
    close(counts[0, 0], np.outer([1, 2, 2, 1], [1, 2, 2, 1]))


# --- random ---------------------------------------------------------------------------------------------------------
def test_dropout():
    x = torch.ones(1000)
    torch.manual_seed(3)
    y = F.dropout(x, 0.25)
    kept = y.numpy() != 0
    close(y.numpy()[kept], np.full(kept.sum(), 1 / 0.75, np.float32), 1e-6)
    assert 650 < kept.sum() < 850
    torch.manual_seed(3)
    close(F.dropout(x, 0.25), y)
    assert F.dropout(x, 0.25, training=False) is x
    close(F.dropout(x, 1.0), np.zeros(1000))
    z = x.clone()
    assert F.dropout(z, 0.5, inplace=True) is z and (z == 0).any()
    maps = F.dropout2d(torch.ones(4, 50, 3, 3), 0.5).numpy()
    assert set(np.unique(maps.reshape(200, -1).sum(1))) == {0.0, 18.0}
    with pytest.raises(ValueError, match="between 0 and 1"):
        F.dropout(x, 1.5)


def test_dropout_gradient_is_its_mask():
    x = t(50)
    y = F.dropout(x, 0.5)
    y.sum().backward()
    close(y, numpy(x) * numpy(x.grad))


def test_alpha_dropout_keeps_the_moments():
    torch.manual_seed(0)
    y = F.alpha_dropout(torch.randn(200000), 0.3, training=True)
    assert abs(y.mean().item()) < 0.02 and abs(y.std().item() - 1) < 0.02


def test_rrelu_and_gumbel():
    x = torch.tensor([-1.0] * 500 + [2.0])
    y = F.rrelu(x, 0.1, 0.3, training=True).numpy()
    assert y[-1] == 2 and (-y[:-1] >= 0.1).all() and (-y[:-1] < 0.3).all() and np.ptp(y[:-1]) > 0.1
    one = F.gumbel_softmax(t(20, 4), hard=True)
    close(one.sum(1), np.ones(20))
    assert set(np.unique(numpy(one).round(12))) == {0.0, 1.0}


# --- array functions are their bodies, kernels are NumPy ------------------------------------------------------------
def affine(n):
    return t(n), t(n)


BODIES = {
    "softmax": lambda: ("softmax", (t(3, 4), 1, 3, None)),
    "log_softmax": lambda: ("log_softmax", (t(3, 4), 0, 3, None)),
    "linear": lambda: ("nn.functional.linear", (t(2, 3, 4), t(5, 4), t(5))),
    "linear_vector": lambda: ("nn.functional.linear", (t(3, 4), t(4), None)),
    "layer_norm": lambda: ("nn.functional.layer_norm", (t(3, 4, 5), (4, 5), t(4, 5), t(4, 5), 1e-5, True)),
    "rms_norm": lambda: (norm._rms_norm, (t(3, 4), (4,), t(4), 1e-3)),
    "batch_norm": lambda: (norm._batch_train, (t(4, 3, 5), *affine(3), None, None, 0.1, 1e-5)),
    "batch_norm_eval": lambda: (norm._batch_eval, (t(4, 3, 5), *affine(3), t(3, requires_grad=False), t(3, low=1, high=2, requires_grad=False), 1e-5)),
    "nll_loss": lambda: ("nn.functional.nll_loss", (t(4, 3), ints(3, 4), t(3, low=1, high=2, requires_grad=False), None, -100, None, "mean")),
    "nll_loss_2d": lambda: ("nn.functional.nll_loss", (t(2, 3, 2, 2), ints(3, 2, 2, 2), None, None, 1, None, "none")),
    "cross_entropy": lambda: ("nn.functional.cross_entropy", (t(4, 3), ints(3, 4), t(3, low=1, high=2, requires_grad=False), None, 1, None, "mean", 0.1)),
    "cross_entropy_sum": lambda: ("nn.functional.cross_entropy", (t(3), ints(3), None, None, -100, None, "sum", 0.0)),
    "cross_entropy_probabilities": lambda: (loss_class.cross_entropy, (t(4, 3), t(4, 3, low=0, high=1), None, None, -100, None, "mean", 0.2)),
}


def record(op):
    from rushlight.ops import record as find
    return find(op) if isinstance(op, str) else op


@pytest.mark.parametrize("case", BODIES)
def test_array_function_is_the_body(case):
    op, args = BODIES[case]()
    op = record(op)
    wanted = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
    fast, body = op.function(*args), op.body(*args)
    close(fast, body)
    assert fast.grad_fn.name() == op.node_name
    g = t(*fast.shape, requires_grad=False)
    a = torch.autograd.grad(fast, wanted, g, retain_graph=True)                         # the gradient's array function
    b = torch.autograd.grad(fast, wanted, g, create_graph=True)                         # its body
    c = torch.autograd.grad(body, wanted, g)                                            # through the forward's body
    for x, y, z in zip(a, b, c):
        close(x, y)
        close(x, z)
    assert gradgradcheck(lambda *xs: op.function(*fill(args, xs)), wanted)


def fill(args, xs):
    it = iter(xs)
    return [next(it) if isinstance(x, torch.Tensor) and x.requires_grad else x for x in args]


KERNELS = {
    "softmax": lambda: (lambda x: F.softmax(x, -1), [t(60, 50, dtype="float32")]),
    "log_softmax": lambda: (lambda x: F.log_softmax(x, -1), [t(60, 50, dtype="float32")]),
    "layer_norm": lambda: (lambda x, w, b: F.layer_norm(x, (50,), w, b), [t(60, 50, dtype="float32"), t(50, dtype="float32"), t(50, dtype="float32")]),
    "rms_norm": lambda: (lambda x, w: F.rms_norm(x, (50,), w), [t(60, 50, dtype="float32"), t(50, dtype="float32")]),
    "cross_entropy": lambda: (lambda x, y=ints(50, 60): F.cross_entropy(x, y, ignore_index=3, label_smoothing=0.1), [t(60, 50, dtype="float32")]),
    "embedding": lambda: (lambda w, i=ints(30, 200): F.embedding(i, w), [t(30, 40, dtype="float32")]),
}


@pytest.mark.parametrize("case", KERNELS)
def test_kernels_are_numpy(case, monkeypatch):
    f, args = KERNELS[case]()

    def both():
        y = f(*args)
        return [y, *torch.autograd.grad((y * y).sum(), args)]
    native = both()
    monkeypatch.setattr(nn_common, "_kernels", [None])
    for a, b in zip(native, both()):
        close(a, b, 2e-5)


# --- derivatives ----------------------------------------------------------------------------------------------------
GRADIENTS = {
    "conv2d": lambda: (lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1, dilation=2, groups=2), [t(2, 4, 6, 5), t(2, 2, 2, 3), t(2)]),
    "conv1d_same": lambda: (lambda x, w: F.conv1d(x, w, padding="same"), [t(1, 2, 5), t(2, 2, 4)]),
    "conv3d": lambda: (F.conv3d, [t(1, 1, 3, 3, 3), t(1, 1, 2, 2, 2)]),
    "conv_transpose2d": lambda: (lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1, groups=2), [t(1, 2, 3, 3), t(2, 1, 3, 3), t(2)]),
    "conv_transpose1d_dilated": lambda: (lambda x, w: F.conv_transpose1d(x, w, dilation=3, output_padding=2), [t(1, 2, 4), t(2, 1, 2)]),
    "max_pool2d": lambda: (lambda x: F.max_pool2d(x, 2, padding=1) ** 2, [t(1, 2, 5, 5)]),
    "max_pool3d_indices": lambda: (lambda x: F.max_pool3d(x, 2, return_indices=True)[0] ** 2, [t(1, 4, 4, 4)]),
    "avg_pool2d": lambda: (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False) ** 2, [t(1, 2, 5, 5)]),
    "adaptive_avg_pool1d": lambda: (lambda x: F.adaptive_avg_pool1d(x, 3) ** 2, [t(1, 2, 7)]),
    "adaptive_max_pool2d": lambda: (lambda x: F.adaptive_max_pool2d(x, (3, 2)) ** 2, [t(1, 2, 5, 5)]),
    "fractional": lambda: (lambda x, s=t(1, 2, 2, low=0, high=1, requires_grad=False): F.fractional_max_pool2d(x, 2, 3, _random_samples=s) ** 2, [t(1, 2, 6, 6)]),
    "unpool": lambda: (lambda x: F.max_unpool1d(x ** 2, torch.tensor([[[1, 2]]]), 2), [t(1, 1, 2)]),
    "unfold": lambda: (lambda x: F.unfold(x, 2, 2, 1, 2) ** 2, [t(1, 2, 5, 5)]),
    "fold": lambda: (lambda x: F.fold(x, (4, 4), 2) ** 2, [t(1, 4, 9)]),
    "bilinear": lambda: (lambda x: F.interpolate(x, (5, 3), mode="bilinear") ** 2, [t(1, 1, 3, 4)]),
    "bicubic_antialias": lambda: (lambda x: F.interpolate(x, (2, 5), mode="bicubic", antialias=True) ** 2, [t(1, 1, 5, 4)]),
    "grid_bilinear": lambda: (lambda x, g: F.grid_sample(x, g, align_corners=False), [t(1, 2, 4, 4), t(1, 2, 3, 2, low=-0.9, high=0.9)]),
    "grid_bicubic": lambda: (lambda x, g: F.grid_sample(x, g, "bicubic", "border", True), [t(1, 1, 5, 5), t(1, 2, 2, 2, low=-0.3, high=0.3)]),
    "grid_3d": lambda: (lambda x, g: F.grid_sample(x, g, align_corners=True), [t(1, 1, 3, 3, 3), t(1, 1, 1, 2, 3, low=-0.8, high=0.8)]),
    "embedding": lambda: (lambda w: F.embedding(torch.tensor([0, 2, 2]), w) ** 2, [t(3, 2)]),
    "bag_weights": lambda: (lambda w, s: F.embedding_bag(torch.tensor([0, 2, 2]), w, torch.tensor([0, 1]), mode="sum", per_sample_weights=s), [t(3, 2), t(3)]),
    "bag_max": lambda: (lambda w: F.embedding_bag(torch.tensor([0, 2, 1]), w, torch.tensor([0, 1]), mode="max") ** 2, [t(3, 2)]),
    "attention": lambda: (F.scaled_dot_product_attention, [t(1, 2, 3), t(1, 2, 3), t(1, 2, 3)]),
    "group_norm": lambda: (lambda x, w: F.group_norm(x, 2, w), [t(2, 4, 3), t(4)]),
    "instance_norm": lambda: (F.instance_norm, [t(2, 2, 4)]),
    "local_response_norm": lambda: (lambda x: F.local_response_norm(x, 3), [t(2, 4, 3)]),
    "prelu": lambda: (F.prelu, [t(2, 3, 2), t(3)]),
    "glu": lambda: (F.glu, [t(2, 4)]),
    "gelu_tanh": lambda: (lambda x: F.gelu(x, approximate="tanh"), [t(4)]),
    "normalize": lambda: (F.normalize, [t(3, 4)]),
    "cosine_similarity": lambda: (F.cosine_similarity, [t(3, 4), t(3, 4)]),
    "pairwise_distance": lambda: (lambda a, b: F.pairwise_distance(a, b, 3.0), [t(3, 4), t(3, 4)]),
    "mse_broadcast": lambda: (lambda a, b: F.mse_loss(a, b), [t(3, 4), t(4)]),
    "huber": lambda: (lambda a, b: F.huber_loss(a, b, delta=0.6), [t(3, 4), t(3, 4)]),
    "bce": lambda: (lambda a, b: F.binary_cross_entropy(a, b, reduction="none"), [t(3, low=0.1, high=0.9), t(3, low=0.1, high=0.9)]),
    "bce_pos_weight": lambda: (lambda a, w=t(3, low=1, high=2, requires_grad=False), y=t(3, low=0, high=1, requires_grad=False):
                               F.binary_cross_entropy_with_logits(a, y, pos_weight=w), [t(3)]),
    "kl_div": lambda: (lambda a, b: F.kl_div(a, b, reduction="sum"), [t(3), t(3, low=0.1, high=1)]),
    "gaussian_nll": lambda: (lambda a, b, v: F.gaussian_nll_loss(a, b, v, full=True), [t(3), t(3), t(3, low=0.5, high=2)]),
    "poisson_nll": lambda: (lambda a, b=t(3, low=2, high=4, requires_grad=False): F.poisson_nll_loss(a, b, full=True), [t(3)]),
    "triplet": lambda: (lambda a, b, c: F.triplet_margin_loss(a, b, c, margin=9.0, swap=True), [t(2, 3), t(2, 3), t(2, 3)]),
    "multi_margin": lambda: (lambda x: F.multi_margin_loss(x, torch.tensor([1, 0]), p=2), [t(2, 3)]),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("case", GRADIENTS)
def test_derivatives(case):
    f, args = GRADIENTS[case]()
    args = [a.detach().requires_grad_() for a in args]
    assert gradcheck(f, args)
    assert gradgradcheck(f, args)


# --- meta, half precision -------------------------------------------------------------------------------------------
def calls():
    x, im, seq = t(4, 6, dtype="float32"), t(2, 3, 8, 8, dtype="float32"), t(2, 3, 9, dtype="float32")
    k = {"dtype": "float32", "requires_grad": False}
    w = t(5, 6, **k)
    return {
        "linear": (F.linear, x, w), "softmax": (lambda x: F.softmax(x, 1), x), "gelu": (F.gelu, x), "relu6": (F.relu6, x),
        "cross_entropy": (F.cross_entropy, x, ints(6, 4)), "nll_none": (lambda x, y: F.nll_loss(x, y, reduction="none"), x, ints(6, 4)),
        "mse": (F.mse_loss, x, t(4, 6, **k)), "layer_norm": (lambda x: F.layer_norm(x, (6,)), x), "rms_norm": (lambda x: F.rms_norm(x, (6,)), x),
        "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), im), "group_norm": (lambda x: F.group_norm(x, 3), im),
        "conv2d": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), im, t(4, 3, 3, 3, **k)), "conv1d": (F.conv1d, seq, t(2, 3, 4, **k)),
        "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1), im, t(3, 4, 3, 3, **k)),
        "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), im), "max_indices": (lambda x: F.max_pool2d(x, 2, return_indices=True)[1], im),
        "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, ceil_mode=True), im), "adaptive_avg": (lambda x: F.adaptive_avg_pool2d(x, 3), im),
        "adaptive_max": (lambda x: F.adaptive_max_pool2d(x, (3, None)), im), "unfold": (lambda x: F.unfold(x, 3), im),
        "interpolate": (lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), im), "pixel_shuffle": (lambda x: F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2), im),
        "embedding": (lambda i, w: F.embedding(i, w), ints(5, 2, 3), w), "dropout": (F.dropout, x), "glu": (F.glu, x), "one_hot": (lambda i: F.one_hot(i, 7), ints(5, 3)),
        "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), t(2, 3, 4, dtype="float32")),
        "local_response_norm": (lambda x: F.local_response_norm(x, 2), im), "cosine": (F.cosine_similarity, x, t(4, 6, **k)),
        "bce_logits": (F.binary_cross_entropy_with_logits, x, t(4, 6, low=0, high=1, **k)), "huber": (F.huber_loss, x, t(4, 6, **k)),
    }


@pytest.mark.parametrize("case", calls())
def test_meta_is_the_cpu_without_values(case):
    f, *args = calls()[case]
    real = f(*args)
    meta = f(*[a.detach().to("meta") for a in args])
    assert meta.device.type == "meta" and meta.shape == real.shape and meta.dtype is real.dtype


# sums of squares of many roundings: the tolerance is the format's, on results of order one
@pytest.mark.parametrize("dtype, tol", [(torch.float16, 4e-3), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("case", [c for c in calls() if c not in ("dropout", "max_indices", "one_hot")])
def test_half_precision_follows_single(case, dtype, tol):
    f, *args = calls()[case]
    low = [a.detach().to(dtype) if a.is_floating_point() else a for a in args]
    got = f(*low)
    want = f(*[a.float() if a.is_floating_point() else a for a in low])
    assert got.dtype is dtype
    close(got.float(), want, tol)
    if low[0].is_floating_point():
        x = low[0].requires_grad_()
        f(x, *low[1:]).sum().backward()
        assert x.grad.dtype is dtype and bool(x.grad.isfinite().all())


# --- in place, warnings, errors -------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["relu", "relu6", "hardtanh", "leaky_relu", "elu", "selu", "celu", "silu", "mish", "hardswish", "hardsigmoid"])
def test_inplace_argument(name):
    f = getattr(F, name)
    x = t(5)
    want = torch.autograd.grad(f(x).sum(), x)[0]
    y = x * 1
    r = f(y, inplace=True)
    assert r is y and y._version == 1
    close(y, f(x))
    y.sum().backward()
    close(x.grad, want)
    with pytest.raises(RuntimeError, match="leaf"):
        f(x, inplace=True)


def test_in_place_names():
    x = torch.tensor([-1.0, 2.0])
    assert F.relu_(x) is x and x.tolist() == [0, 2]
    assert F.threshold_(x, 1.0, 7.0).tolist() == [7, 2]


def test_warnings_point_at_the_call():
    x, y = torch.zeros(3, 1), torch.zeros(3)
    for f in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            for _ in range(3):
                f(x, y)
        assert len(seen) == 1 and "different to the input size" in str(seen[0].message) and seen[0].filename == __file__
    with pytest.warns(UserWarning, match="reduction='sum'"):
        close(F.mse_loss(y + 1, y, size_average=False), 3.0)
    with pytest.warns(UserWarning, match="reduction='none'"):
        assert F.l1_loss(y, y, reduce=False).shape == (3,)
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        F.softmax(torch.zeros(2, 3))


@pytest.mark.parametrize("call, error, message", [
    (lambda: F.cross_entropy(torch.zeros(2, 3), torch.tensor([0, 3])), IndexError, "Target 3 is out of bounds"),
    (lambda: F.cross_entropy(torch.zeros(200, 30), torch.full((200,), 30)), IndexError, "Target 30 is out of bounds"),
    (lambda: F.cross_entropy(torch.zeros(2, 3), torch.tensor([0, 1, 2])), ValueError, "batch_size"),
    (lambda: F.cross_entropy(torch.zeros(2, 3), torch.tensor([0.0, 1.0])), RuntimeError, "Long"),
    (lambda: F.cross_entropy(torch.zeros(2, 3), torch.tensor([0, 1]), torch.ones(2)), RuntimeError, "all 3 classes"),
    (lambda: F.cross_entropy(torch.zeros(2, 3), torch.tensor([0, 1]), label_smoothing=2.0), RuntimeError, "label_smoothing"),
    (lambda: F.mse_loss(torch.zeros(2), torch.zeros(2), reduction="total"), ValueError, "total"),
    (lambda: F.binary_cross_entropy(torch.tensor([1.5]), torch.tensor([1.0])), RuntimeError, "between 0 and 1"),
    (lambda: F.layer_norm(torch.zeros(2, 3), (4,)), RuntimeError, "normalized_shape"),
    (lambda: F.batch_norm(torch.zeros(2, 3), torch.zeros(2), torch.zeros(2)), RuntimeError, "running_mean should contain 3"),
    (lambda: F.batch_norm(torch.zeros(1, 3), None, None, training=True), ValueError, "more than 1 value per channel"),
    (lambda: F.group_norm(torch.zeros(2, 3), 2), RuntimeError, "divisible by num_groups"),
    (lambda: F.conv2d(torch.zeros(1, 3, 4, 4), torch.zeros(2, 2, 3, 3)), RuntimeError, "channels"),
    (lambda: F.conv2d(torch.zeros(4, 4), torch.zeros(2, 2, 3, 3)), RuntimeError, "Expected 3D"),
    (lambda: F.conv2d(torch.zeros(1, 2, 4, 4), torch.zeros(2, 2, 3, 3).double()), RuntimeError, "should be the same"),
    (lambda: F.conv2d(torch.zeros(1, 2, 4, 4), torch.zeros(2, 2, 3, 3), stride=2, padding="same"), RuntimeError, "strided"),
    (lambda: F.max_pool2d(torch.zeros(1, 2, 4, 4), 2, padding=2), RuntimeError, "half"),
    (lambda: F.glu(torch.zeros(3)), RuntimeError, "even"),
    (lambda: F.gelu(torch.zeros(3), approximate="exact"), RuntimeError, "none or tanh"),
    (lambda: F.softshrink(torch.zeros(3), -1.0), RuntimeError, "greater or equal to 0"),
    (lambda: F.one_hot(torch.tensor([3]), 2), RuntimeError, "smaller than num_classes"),
    (lambda: F.pixel_shuffle(torch.zeros(3, 2, 2), 2), RuntimeError, "divisible"),
    (lambda: F.grid_sample(torch.zeros(1, 1, 2, 2), torch.zeros(1, 2, 2, 3), align_corners=False), RuntimeError, "size 2 in last dimension"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_empty_batches():
    for f, x in ((lambda x: F.conv2d(x, torch.zeros(4, 3, 3, 3)), torch.zeros(0, 3, 5, 5)), (lambda x: F.max_pool2d(x, 2), torch.zeros(0, 3, 4, 4)),
                 (lambda x: F.linear(x, torch.zeros(2, 3)), torch.zeros(0, 3)), (lambda x: F.layer_norm(x, (3,)), torch.zeros(0, 3)),
                 (lambda x: F.softmax(x, 1), torch.zeros(0, 3))):
        y = f(x.requires_grad_())
        assert y.shape[0] == 0
        y.sum().backward()
        assert x.grad.shape == x.shape
    assert math.isnan(F.cross_entropy(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)).item())
    assert math.isnan(F.mse_loss(torch.zeros(0), torch.zeros(0)).item())


def test_saved_operands_are_guarded():
    x, w = t(3, 4), t(5, 4)
    y = F.linear(x, w)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_losses_of_the_main_namespace():
    """The reduction is a number there, and "none" where it is not given."""
    x, y = t(3, 4), t(3, 4, low=0, high=1, requires_grad=False)
    close(torch.binary_cross_entropy_with_logits(x, y), F.binary_cross_entropy_with_logits(x, y, reduction="none"))
    close(torch.kl_div(x, y, 2), F.kl_div(x, y, reduction="sum"))
    close(torch.poisson_nll_loss(x, y, True, False, 1e-8, 1), F.poisson_nll_loss(x, y))
    one = torch.ones(3, 4, dtype=torch.float64)
    close(torch.hinge_embedding_loss(x, one, reduction=1), F.hinge_embedding_loss(x, one))
    close(torch.margin_ranking_loss(x, y, one, 0.1), F.margin_ranking_loss(x, y, one, 0.1, reduction="none"))
    close(torch.cosine_embedding_loss(x, y, one[:, 0], 0.1, 2), F.cosine_embedding_loss(x, y, one[:, 0], 0.1, reduction="sum"))
    close(torch.triplet_margin_loss(x, y, one), F.triplet_margin_loss(x, y, one, reduction="none"))
