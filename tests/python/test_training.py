"""Graphs that need gradients: results and gradients as eager's, with their aliasing, history and
version counters.
"""

import pytest
import torch
import torch.nn.functional as F
from training import check_training, error_of, step

import uncopy


def leaf(*shape, dtype=torch.float32, seed=1):
    return (
        torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_()
    )


def data(*shape, seed=2):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def inner(*shape):
    """A tensor that requires grad and is no leaf."""
    return leaf(*shape) * 1  # keeps the leaf as its history


def in_place_on_an_intermediate(x, w):
    h = x @ w
    h.add_(1).mul_(2)
    h[:, 1:].sub_(x[:, :2])
    return F.relu(h, inplace=True)


def several_results(x, w):
    h = x @ w
    return h.sum(), h > 0, h.detach(), h * 2, 3, None, h.argmax(1)


def views_as_results(x, w):
    h = x @ w
    return h[1:], h.view(-1), h.t(), h


def only_views_of_a_result(x, w):
    h = x @ w
    return h[1:], h.view(-1)


def views_of_arguments(x, w):
    return w.t(), w.view(-1)[2:], w.detach(), x[1:], w * 2


def the_argument_itself(x, w):
    return w, x, (x @ w)


def twice_the_same(x, w):
    h = x @ w
    return h, h


def split_results(x, w):
    a, b, c = (x @ w).split(1, 1)
    return a * 1, b, c


def no_result_without_history(x, w):
    y = w * 2
    return (y > 0).sum(), y.detach()


def without_grad_inside(x, w):
    with torch.no_grad():
        scale = (w * w).sum().sqrt()
    return x @ w / scale, scale


def views_without_grad(x, w):
    h = x @ w
    with torch.no_grad():
        v = h[1:]
    return h * 1, v * 1


def metadata_in_place(x, w):
    h = x @ w
    h.t_()
    h.unsqueeze_(0)
    return h


def another_dtype(x, w):
    h = w.double()
    return x @ w, h, h.view(torch.int64) + 0


def indexing(x, w):
    h = torch.zeros(5, 3).index_put((torch.tensor([0, 2, 4, 0]),), x @ w, accumulate=True)
    h[1] = w[0]
    return h.gather(0, torch.tensor([[0, 1, 2], [4, 3, 2]]))


def same_tensor_twice(x, w):
    return w * w + w @ w.t() @ w


def ordinary(x, w):
    return F.gelu(F.layer_norm(x @ w, (3,))).softmax(-1).log().mean()


def concatenated(x, w):
    return torch.cat([x @ w, w], 0), torch.stack([w, w * 2]).transpose(0, 1)


def chunk_updates(x, w):
    h = (x @ w).clone()
    a, b = h[:2], h[2:]
    a.add_(b * 2)
    return h, a


def data_write(x, w):
    h = x @ w
    y = h.exp()
    h.data.zero_()
    return y + h


FUNCTIONS = [
    in_place_on_an_intermediate,
    several_results,
    views_as_results,
    only_views_of_a_result,
    views_of_arguments,
    the_argument_itself,
    twice_the_same,
    split_results,
    without_grad_inside,
    views_without_grad,
    metadata_in_place,
    another_dtype,
    indexing,
    same_tensor_twice,
    ordinary,
    concatenated,
    chunk_updates,
    data_write,
]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_step_is_eagers(fn):
    check_training(fn, lambda: (data(4, 5)[:, :4], leaf(4, 3)), fullgraph=True)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_step_on_arguments_with_a_history_is_eagers(fn):
    check_training(fn, lambda: (inner(4, 4), inner(4, 3)), calls=1, fullgraph=True)


def test_a_graph_without_result_that_has_a_history_is_planned_without_gradients():
    compiled = torch.compile(no_result_without_history, backend="uncopy", fullgraph=True)
    w = leaf(4, 3)
    count, same = compiled(data(4, 4), w)
    assert (count, same.requires_grad) == ((w > 0).sum(), False)
    assert torch.equal(same, (w * 2).detach())
    assert [p.name.endswith("_backward") for p in uncopy.plans()] == [False]


# ---- arguments that are written ----


def write_without_grad(flat, x):
    with torch.no_grad():
        flat.copy_(x.sum() * torch.arange(12.0))
    return x @ flat[:8].view(4, 2) @ flat[8:].view(2, 2)


def give_a_history(buffer, w):
    buffer.copy_(w * 2)
    return (buffer * w).sum()


def write_what_has_a_history(x, w):
    x.mul_(w)
    return x.sin(), (x * 2).sum()


def count_calls(x, w):
    x.add_(1)
    return (w * 3).sum()


WRITERS = {
    "without grad, a leaf": (write_without_grad, lambda: (leaf(12), data(3, 4))),
    "without grad, no leaf": (write_without_grad, lambda: (inner(12), data(3, 4))),
    "without grad, a buffer": (write_without_grad, lambda: (data(12), leaf(3, 4))),
    "what gets a history": (give_a_history, lambda: (data(4), leaf(4))),
    "what has a history": (write_what_has_a_history, lambda: (inner(4), leaf(4))),
    "what has a history, with data": (write_what_has_a_history, lambda: (inner(4), data(4))),
    "what has none": (count_calls, lambda: (data(4), leaf(4))),
}


@pytest.mark.parametrize("name", WRITERS)
def test_written_arguments_are_eagers(name):
    fn, build = WRITERS[name]
    check_training(fn, build, retain=False, fullgraph=True)


def test_an_argument_that_gets_a_history_and_retains_its_gradient_runs_as_eager():
    fn, build = WRITERS["what has a history"]
    check_training(fn, build, calls=1, fallbacks=1, fullgraph=True)


@pytest.mark.parametrize("fn", [give_a_history, write_what_has_a_history])
def test_an_argument_that_gets_a_history_and_is_a_view_runs_as_eager(fn):
    def part():
        base = inner(8) if fn is write_what_has_a_history else data(8)
        return base[2:6], leaf(4)

    check_training(fn, part, fallbacks=2, calls=2, fullgraph=True)


def test_a_leaf_with_grad_that_is_written_raises_as_eager():
    compiled = torch.compile(lambda x, w: (x.mul_(w), x * 2)[1], backend="uncopy")
    compiled(inner(4), leaf(4)).sum().backward()
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        compiled(leaf(4), leaf(4))


def test_weights_that_share_a_buffer_written_in_the_graph():
    """The weights are leaves over a flat buffer that the graph fills before it reads them."""

    def fn(x, flat, part, w1, w2):
        with torch.no_grad():
            flat[:16].copy_(part)
            flat[16:].copy_(part * 2)
        return (x @ w1) @ w2

    def build():
        flat = torch.zeros(32)
        w1, w2 = flat[:16].view(4, 4), flat[16:].view(4, 4)
        leaves = [w.detach().requires_grad_() for w in (w1, w2)]
        return leaf(3, 4), flat, data(16), *leaves

    check_training(fn, build, fullgraph=True)


@pytest.mark.parametrize("shares", [False, True])
def test_a_saved_argument_written_through_another_one_raises_as_eager(shares):
    def fn(w, buffer):
        y = (w.exp() * w).sum()
        buffer.add_(1)
        return y

    def build():
        buffer = data(4)
        w = (buffer if shares else buffer.clone()).detach().requires_grad_()
        return w, buffer

    compiled = torch.compile(fn, backend="uncopy", fullgraph=True)
    for _ in range(2):
        eagers = error_of(lambda: step(fn, build()))
        ours = error_of(lambda: step(compiled, build()))
        assert (eagers is None) == (not shares)
        assert (eagers and eagers[0]) == (ours and ours[0])
        assert not shares or "modified by an inplace operation" in ours[1]


@pytest.mark.parametrize("what", ["argument", "result", "intermediate's view"])
def test_what_was_saved_and_is_written_before_the_backward_raises_as_eager(what):
    def fn(x, w):
        h = (x * w).exp()
        return h.sin().sum(), h if what == "result" else h[1:]

    def run(fn):
        x, w = data(4), leaf(4)
        loss, h = fn(x, w)
        with torch.no_grad():
            (x if what == "argument" else h).add_(1)
        loss.backward()

    eagers = error_of(lambda: run(fn))
    ours = error_of(lambda: run(torch.compile(fn, backend="uncopy")))
    assert eagers[0] is ours[0] is RuntimeError
    assert "modified by an inplace operation" in ours[1]


# ---- the backward ----


def two_parts(x, w1, w2):
    return x * w1 * w1, (x * w2).clamp(-1, 1)


def test_an_argument_that_only_an_unused_result_depends_on_has_no_gradient():
    def backward(args, results):
        results[0].sum().backward()

    check_training(two_parts, lambda: (data(4), leaf(4), leaf(4)), backward=backward, exact=True)


TANGENTS = {
    "expanded": lambda r: r.sum().backward(),
    "transposed": lambda r: r.backward(data(*reversed(r.shape)).t()),
    "a slice": lambda r: r.backward(data(r.shape[0], 9)[:, ::3]),
}


@pytest.mark.parametrize("name", TANGENTS)
def test_tangents_of_any_layout(name):
    def backward(args, results):
        TANGENTS[name](results)

    check_training(
        lambda x, w: (x @ w).sin(),
        lambda: (data(4, 5), leaf(5, 3)),
        backward=backward,
    )
    assert len([p for p in uncopy.plans() if "_backward" in p.name]) >= 1


def test_many_layouts_of_tangents_are_copied_into_one():
    w = leaf(2, 2)
    compiled = torch.compile(lambda w: w * w, backend="uncopy")
    for width in range(2, 24):
        w.grad = None
        tangent = data(2, width)[:, :2]
        compiled(w).backward(tangent)
        assert torch.equal(w.grad, (tangent * w + tangent * w).detach())


def test_gradients_that_are_one_tensor_do_not_come_to_share_memory():
    def build():
        return leaf(4), leaf(4, seed=5), leaf(2, 2, seed=6)

    check_training(
        lambda a, b, c: a + b + c.view(4), build, backward=lambda a, r: r.sum().backward()
    )
    check_training(
        lambda a, b, c: a + b + c.view(4), build, backward=lambda a, r: r.backward(torch.ones(4))
    )


def test_gradients_accumulate_into_those_that_are_there():
    def train(fn, w, x):
        grads = []
        for number in range(3):
            if number == 2:
                w.grad.zero_()
            fn(x, w).sum().backward()
            grads.append((w.grad.clone(), w.grad.data_ptr()))
        return [g for g, _ in grads], len({p for _, p in grads})

    def fn(x, w):
        return x * w * w

    ours, eagers = leaf(4), leaf(4)
    got, count = train(torch.compile(fn, backend="uncopy"), ours, data(4))
    wanted, expected = train(fn, eagers, data(4))
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
    assert count == expected == 1


def test_retain_graph_and_a_second_backward_without_it():
    def run(fn):
        w = leaf(4)
        loss = fn(data(4), w)
        loss.backward(retain_graph=True)
        loss.backward()
        return w.grad, error_of(loss.backward)

    def fn(x, w):
        return (x * w).exp().sum()

    grad, error = run(torch.compile(fn, backend="uncopy"))
    wanted, expected = run(fn)
    assert torch.equal(grad, wanted)
    assert error[0] is expected[0]
    assert "backward through the graph a second time" in error[1]


def test_a_second_derivative_is_refused_and_a_first_with_create_graph_is_not():
    compiled = torch.compile(lambda w: (w**3).sum(), backend="uncopy")
    w = leaf(4)
    (grad,) = torch.autograd.grad(compiled(w), w, create_graph=True)
    assert torch.equal(grad, 3 * w.detach() ** 2)
    with pytest.raises(RuntimeError, match="no second derivative"):
        grad.sum().backward()


def test_gradients_of_chosen_arguments_and_of_results_apart():
    def fn(x, a, b):
        return (x @ a).sin(), (x @ b).cos() + a.sum()

    def run(fn):
        x, a, b = data(4, 3), leaf(3, 3), leaf(3, 3, seed=4)
        first, second = fn(x, a, b)
        found = torch.autograd.grad(second.sum(), [b], retain_graph=True)
        return *found, *torch.autograd.grad([first.sum(), second.sum()], [a, b])

    for got, wanted in zip(run(torch.compile(fn, backend="uncopy")), run(fn), strict=True):
        assert torch.allclose(got, wanted, atol=1e-6)


def test_hooks_outside_the_graph_are_called():
    def run(fn):
        seen = []
        w = leaf(4)
        w.register_hook(lambda g: seen.append(g.clone()) or g * 2)
        w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        y = fn(data(4), w)
        y.register_hook(lambda g: g * 3)
        y.sum().backward()
        return [*seen, w.grad]

    def fn(x, w):
        return x * w * w

    for got, wanted in zip(run(torch.compile(fn, backend="uncopy")), run(fn), strict=True):
        assert torch.equal(got, wanted)


def test_hooks_on_saved_tensors_see_what_was_saved():
    def run(fn):
        packed = []
        w = leaf(4)

        def pack(t):
            packed.append(t.shape)
            return t.clone()

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            loss = fn(data(4), w)
        loss.backward()
        return w.grad, packed

    compiled = torch.compile(lambda x, w: (x * w).exp().sum(), backend="uncopy")
    run(compiled)
    grad, packed = run(compiled)
    wanted, _ = run(lambda x, w: (x * w).exp().sum())
    assert torch.equal(grad, wanted)
    assert packed


def test_a_graph_is_dropped_with_its_compiled_function():
    import gc

    compiled = torch.compile(lambda w: (w * w).sum(), backend="uncopy")
    compiled(leaf(4)).backward()
    assert len(uncopy.plans()) == 2
    calls = uncopy.stats()["calls"]
    del compiled
    torch._dynamo.reset()
    gc.collect()
    assert uncopy.plans() == []
    assert uncopy.stats()["calls"] == calls == 2


def test_backward_operations_name_the_line_of_the_forward():
    compiled = torch.compile(lambda w: w.exp().sum(), backend="uncopy")
    compiled(leaf(4)).backward()
    backward = next(p for p in uncopy.plans() if p.name.endswith("_backward"))
    assert "test_training.py" in backward.text()


def test_sizes_that_change_are_planned_for_each():
    def fn(x, w):
        return (x @ w).relu().sum(0) / x.shape[0]

    compiled = torch.compile(fn, backend="uncopy", dynamic=True)
    for rows in (3, 5, 3, 7):
        ours, eagers = leaf(4, 2), leaf(4, 2)
        fn(data(rows, 4), eagers).sum().backward()
        compiled(data(rows, 4), ours).sum().backward()
        assert torch.allclose(ours.grad, eagers.grad, atol=1e-6)
    assert uncopy.stats()["fallbacks"] == 0
    assert len([p for p in uncopy.plans() if "_backward" in p.name]) >= 3
