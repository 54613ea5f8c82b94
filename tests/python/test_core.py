"""The C extension: tensors in and out, the host's operations, version counters, failures.

Programs are built by hand. Each test says in its name what holds; all hold with every probe forced
off as well (UNCOPY_FORCED_OFF=all).
"""

import ctypes
import gc
import threading
import weakref

import pytest
import torch

_core = pytest.importorskip("uncopy._core")


@pytest.fixture(scope="module", autouse=True)
def probes():
    try:
        from uncopy import runtime

        return runtime.PROBES
    except ImportError:
        return _core.initialize(
            tensor_type=torch.Tensor,
            parameter_type=torch.nn.Parameter,
            torch_library=torch._C.__file__,
            strict_error=RuntimeError,
            helpers={},
            forced_off=frozenset(),
        )


def code(dtype=torch.float32):
    return _core.dtype_code(dtype)


def layout(tensor):
    return code(tensor.dtype), tuple(tensor.shape), tensor.stride()


class Build:
    """A program over the layouts of example tensors."""

    def __init__(self, *examples):
        self.program = _core.Program("p")
        self.args = [self.program.add_argument(None, *layout(t)) for t in examples]
        self.recipes = []

    def storage(self, example, fresh=False):
        return self.program.add_storage(None, fresh, *layout(example))

    def view(self, of, example, offset_bytes=0, from_storage=False):
        return self.program.add_view(None, of, *layout(example), offset_bytes, from_storage)

    def op(self, name, reads, writes, **more):
        self.program.add_operation(name, reads, writes, **more)

    def extern(
        self,
        call,
        args,
        reads,
        writes=(),
        returns=(),
        out=None,
        kwargs=None,
        results=(0,),
        effects=None,
    ):
        self.recipes.append(_core.Recipe(call, out, args, kwargs or {}, list(results)))
        self.program.add_operation(
            "extern",
            reads,
            writes,
            returns,
            target="test.call",
            effects=_core.EFFECT_AUDITED if effects is None else effects,
            host_id=len(self.recipes) - 1,
            file="t.py",
            line=7,
        )

    def function(self, *outputs, **options):
        numbered = []
        for o in outputs:
            if isinstance(o, tuple):
                view, more = o
            else:
                view, more = o, {}
            self.program.add_output(view)
            numbered.append(_core.Output(len(numbered), **more))
        return _core.Function(self.program, options, self.recipes, numbered)


def add_function(x, y):
    b = Build(x, y)
    z = b.storage(x)
    b.op("add", b.args, [z])
    return b.function(z)


X = torch.arange(12.0).reshape(3, 4)
S = _core.Slot


# ---- in and out


def test_a_fresh_result_is_eagers():
    y = torch.ones(3, 4)
    (z,) = add_function(X, y)(X, y)
    assert torch.equal(z, X + y)
    assert z.untyped_storage().nbytes() == 48
    assert type(z) is torch.Tensor
    assert z._version == 0
    assert not z._is_view()


def test_an_argument_returned_is_the_callers_object():
    b = Build(X, X)
    b.op("add", b.args, [b.args[0]])
    f = b.function(b.args[0])
    x, y = X.clone(), X.clone()
    assert f(x, y)[0] is x
    assert torch.equal(x, X + X)


def test_a_constant_value_stands_in_the_result():
    b = Build(X)
    f = _core.Function(b.program, {}, [], [_core.Output(-1, value="s"), _core.Output(-1)])
    assert f(X) == ("s", None)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("row", [0, 1])
def test_a_view_of_an_argument_has_eagers_metadata(requires_grad, row):
    p = torch.nn.Parameter(X.clone(), requires_grad=requires_grad)
    b = Build(p)
    v = b.view(b.args[0], X[row], 16 * row)
    f = b.function((v, {"requires_grad": requires_grad, "is_view": True}))
    with torch.no_grad():
        (got,) = f(p)
        wanted = p[row]
    assert got.data_ptr() == wanted.data_ptr()
    assert got.stride() == wanted.stride()
    assert got.untyped_storage()._cdata == p.untyped_storage()._cdata
    assert got.requires_grad == wanted.requires_grad
    assert got._is_view()
    assert got._base is p
    with torch.no_grad():
        got.add_(1)
    assert p._version == 1


def test_a_view_of_a_detached_parameter_requires_no_grad():
    p = torch.nn.Parameter(X.clone())
    b = Build(p)
    v = b.view(b.args[0], X[1], 16)
    (got,) = b.function((v, {"is_view": True}))(p)
    assert got._is_view()
    assert not got.requires_grad
    assert got.data_ptr() == p.data_ptr() + 16


def test_a_detached_argument_is_no_view_and_shares_the_version():
    p = torch.nn.Parameter(X.clone())
    b = Build(p)
    v = b.view(b.args[0], X)
    f = b.function((v, {}), (b.args[0], {}))
    got = f(p)[0]
    if got is not p:  # the whole argument is the caller's object
        assert not got.requires_grad
        assert got.data_ptr() == p.data_ptr()


def test_a_view_of_another_dtype_shares_the_storage():
    x = torch.zeros(4, dtype=torch.complex64)
    b = Build(x)
    real = torch.view_as_real(x)
    v = b.view(b.args[0], real)
    f = b.function((v, {"is_view": True}))
    (got,) = f(x)
    assert got.shape == (4, 2)
    assert got.dtype == torch.float32
    assert got.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert got._is_view()


def test_a_view_counted_from_the_storage_starts_there():
    flat = torch.arange(24.0)
    x = flat[4:16].reshape(3, 4)
    b = Build(x)
    v = b.view(b.args[0], flat, 0, True)
    (got,) = b.function((v, {"is_view": True}))(x)
    assert got.data_ptr() == flat.data_ptr()
    assert got.shape == (24,)


@pytest.mark.parametrize("is_view", [False, True])
def test_a_view_of_a_fresh_result_shares_its_storage(is_view):
    b = Build(X, X)
    z = b.storage(X)
    v = b.view(z, X[1], 16)
    b.op("add", b.args, [z])
    f = b.function(z, (v, {"is_view": is_view}))
    whole, row = f(X, X)
    assert row.data_ptr() == whole.data_ptr() + 16
    assert row._is_view() == is_view
    assert row.untyped_storage()._cdata == whole.untyped_storage()._cdata
    assert torch.equal(row, X[1] * 2)


def test_a_view_of_an_inference_parameter_is_eagers():
    with torch.inference_mode():
        p = torch.nn.Parameter(X.clone())
        b = Build(p)
        v = b.view(b.args[0], X[1], 16)
        (got,) = b.function((v, {"requires_grad": True, "is_view": True}))(p)
        wanted = p[1]
    assert (got.requires_grad, got._is_view()) == (wanted.requires_grad, wanted._is_view())


def test_results_of_inference_mode_are_inference_tensors():
    f = add_function(X, X)
    with torch.inference_mode():
        (z,) = f(X, X)
    assert z.is_inference()
    (z,) = f(X, X)
    assert not z.is_inference()


ALL_DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.uint16,
    torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
]  # fmt: skip


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_every_dtype_comes_and_goes(dtype):
    x = torch.zeros(6, dtype=dtype)
    b = Build(x)
    r = b.storage(x)
    v = b.view(b.args[0], x[2:], 2 * x.itemsize)
    b.extern(lambda t: t.clone(), (S(0),), [b.args[0]], returns=[r])
    got, part = b.function(r, v)(x)
    assert got.dtype == dtype
    assert part.dtype == dtype
    assert part.data_ptr() == x.data_ptr() + 2 * x.itemsize


def test_a_dtype_without_a_number_is_a_key_error():
    with pytest.raises(KeyError):
        _core.dtype_code(torch.qint8)


# ---- operations of the host


def test_an_extern_gets_the_callers_own_objects():
    seen = []

    def call(a, items, *, other):
        seen.append((a, items[0], other))
        return a + other

    b = Build(X, X)
    r = b.storage(X)
    b.extern(call, (S(0), [S(1), 5]), [b.args[0], b.args[1]], returns=[r], kwargs={"other": S(1)})
    x, y = X.clone(), X.clone()
    (z,) = b.function(r)(x, y)
    assert seen[0][0] is x
    assert seen[0][1] is y
    assert seen[0][2] is y
    assert torch.equal(z, x + y)


def test_a_view_given_to_an_extern_shares_the_callers_storage():
    seen = []
    b = Build(X)
    row = b.view(b.args[0], X[1], 16)
    r = b.storage(X[1])
    b.extern(lambda t: seen.append(t) or t * 2, (S(0),), [row], returns=[r])
    x = X.clone()
    (z,) = b.function(r)(x)
    assert seen[0].untyped_storage()._cdata == x.untyped_storage()._cdata
    assert seen[0].data_ptr() == x.data_ptr() + 16
    assert torch.equal(z, x[1] * 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int16])
def test_a_view_of_an_argument_inside_its_storage_is_where_it_must_be(dtype):
    seen = []
    flat = torch.arange(24.0)
    x = flat[4:16].reshape(3, 4)
    part = x[1].view(dtype)
    b = Build(x)
    row = b.view(b.args[0], part, 16)
    r = b.storage(part)
    b.extern(lambda t: seen.append(t) or t.clone(), (S(0),), [row], returns=[r])
    z, same = b.function(r, (row, {}))(x)
    for t in (seen[0], same):
        assert t.data_ptr() == x.data_ptr() + 16
        assert t.storage_offset() == part.storage_offset()
        assert t.untyped_storage()._cdata == flat.untyped_storage()._cdata
    assert torch.equal(z, part)


def test_a_view_of_a_result_inside_its_storage_is_where_it_must_be():
    big = torch.arange(24.0)
    b = Build(X)
    r = b.storage(X)
    row = b.view(r, X[2], 32)
    s = b.storage(X[2])
    b.extern(lambda t: big[4:16].reshape(3, 4), (S(0),), [b.args[0]], returns=[r])
    b.extern(lambda t: t + 1, (S(0),), [row], returns=[s])
    z, whole, part = b.function(s, r, (row, {"is_view": True}))(X)
    assert torch.equal(z, big[12:16] + 1)
    assert whole.data_ptr() == big.data_ptr() + 16
    assert part.data_ptr() == big.data_ptr() + 48


def test_arena_operands_are_wrapped_once_for_all_calls():
    seen = []
    b = Build(X)
    t = b.storage(X)
    r = b.storage(X)
    b.op("add", [b.args[0], _core.Number(1)], [t])
    b.extern(lambda a: seen.append((id(a), a.data_ptr())) or a * 2, (S(0),), [t], returns=[r])
    f = b.function(r)
    for _ in range(3):
        assert torch.equal(f(X)[0], (X + 1) * 2)
    assert len({s[1] for s in seen}) == 1
    assert len({s[0] for s in seen}) == 1


def test_arena_memory_made_in_inference_mode_serves_outside_it():
    b = Build(X)
    t = b.storage(X)
    r = b.storage(X)
    b.op("add", [b.args[0], _core.Number(1)], [t])
    b.extern(lambda a: a.add_(1), (S(0),), [t], writes=[t])
    b.op("add", [t, _core.Number(0)], [r])
    f = b.function(r)
    with torch.inference_mode():
        assert torch.equal(f(X)[0], X + 2)
    assert torch.equal(f(X)[0], X + 2)


def test_one_of_several_results_is_taken_by_its_index():
    b = Build(X)
    values, places = b.storage(X), b.storage(X.long())
    b.extern(
        lambda t: [None, (torch.sort(t)[1], torch.sort(t)[0])],
        (S(0),),
        [b.args[0]],
        returns=[values, places],
        results=(2, 1),
    )
    got, index = b.function(values, places)(X)
    assert torch.equal(got, X)
    assert index.dtype == torch.int64


def test_a_result_in_another_layout_is_copied_and_counted():
    b = Build(X)
    r = b.storage(X)
    b.extern(lambda t: t.t().contiguous().t(), (S(0),), [b.args[0]], returns=[r])
    f = b.function(r)
    before = f.counts()["copies"]
    (z,) = f(X)
    assert z.stride() == (4, 1)
    assert torch.equal(z, X)
    assert f.counts()["copies"] == before + 1
    assert f.counts()["layout_bytes"] == 48


def test_a_conjugate_result_is_resolved():
    x = torch.tensor([1 + 2j, 3 - 1j])
    b = Build(x)
    r = b.storage(x)
    b.extern(lambda t: t.conj(), (S(0),), [b.args[0]], returns=[r])
    (z,) = b.function(r)(x)
    assert not z.is_conj()
    assert torch.equal(z, x.conj().resolve_conj())


@pytest.mark.parametrize(
    "result", [torch.zeros(3, 5), torch.zeros(3, 4, dtype=torch.float64), "no tensor", None]
)
def test_a_result_that_was_not_planned_is_an_error(result):
    b = Build(X)
    r = b.storage(X)
    b.extern(lambda t: result, (S(0),), [b.args[0]], returns=[r])
    with pytest.raises((RuntimeError, TypeError), match=r"test\.call"):
        b.function(r)(X)


def test_an_exception_in_an_extern_passes_through_unchanged():
    error = LookupError("mine")

    def call(t):
        raise error

    b = Build(X)
    r = b.storage(X)
    b.extern(call, (S(0),), [b.args[0]], returns=[r])
    f = b.function(r)
    for _ in range(3):
        with pytest.raises(LookupError) as caught:
            f(X)
        assert caught.value is error


def test_a_matmul_writes_arguments_arena_and_results():
    a, w = torch.randn(8, 4), torch.randn(4, 8)
    b = Build(a, w)
    h = b.storage(torch.empty(8, 8))
    r = b.storage(torch.empty(8, 8))
    wt = b.view(b.args[1], w[:, :8])
    b.op("matmul", [b.args[0], wt], [h])
    b.op("matmul", [h, h], [r])
    (z,) = b.function(r)(a, w)
    torch.testing.assert_close(z, (a @ w) @ (a @ w))


def test_a_function_may_call_itself():
    b = Build(X)
    t, r = b.storage(X), b.storage(X)
    depth = []

    def call(x):
        depth.append(1)
        return f(x)[0] + 1 if len(depth) < 4 else x + 1

    b.op("add", [b.args[0], _core.Number(0)], [t])
    b.extern(call, (S(0),), [t], returns=[r])
    f = b.function(r)
    assert torch.equal(f(X)[0], X + 4)


def test_threads_run_one_function():
    b = Build(X)
    t, r = b.storage(X), b.storage(X)
    b.op("add", [b.args[0], _core.Number(1)], [t])
    b.extern(lambda x: x * 2, (S(0),), [t], returns=[r])
    f = b.function(r)
    f(X)
    wrong = []

    def work(k):
        for _ in range(50):
            x = X + k
            if not torch.equal(f(x)[0], (x + 1) * 2):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("kernels", ["native", "extern"])
def test_rows_run_on_either_kernels(kernels):
    b = Build(X, X)
    t, r = b.storage(X), b.storage(X)
    b.recipes.append(_core.Recipe(torch.add, torch.add, (S(0), S(1)), {}, [0]))
    b.recipes.append(_core.Recipe(torch.mul, None, (S(0), 2.0), {}, [0]))
    row = b.view(b.args[0], X[1], 16)
    back = b.view(r, X[1], 16)
    b.op("add", b.args, [t], host_id=0, effects=_core.EFFECT_OUT | _core.EFFECT_OUT_LAYOUT)
    b.op("mul", [t, _core.Number(2.0)], [r], host_id=1)
    b.op("copy", [back], [row])
    b.op("fill", [_core.Number(0.5)], [back])
    f = b.function(r, b.args[0], kernels=kernels)
    x = X.clone()
    z, same = f(x, X)
    wanted = X * 4
    row_wanted = wanted[1].clone()
    wanted[1] = 0.5
    assert torch.equal(z, wanted)
    assert same is x
    assert torch.equal(x[1], row_wanted)
    assert x._version == 1


def test_operations_of_the_host_record_no_gradient():
    modes = []

    def call(t):
        modes.append(torch.is_grad_enabled())
        return t > 2

    w = torch.nn.Parameter(X.clone())
    b = Build(X)
    t, r = b.storage(X), b.storage(X > 2)
    b.recipes.append(_core.Recipe(torch.mul, torch.mul, (S(0), 2.0), {}, [0]))
    out = _core.EFFECT_OUT | _core.EFFECT_OUT_LAYOUT
    b.op("mul", [b.args[0], _core.Number(2.0)], [t], host_id=0, effects=out)
    b.extern(call, (S(0),), [t], returns=[r])
    f = b.function(r, kernels="extern")
    for _ in range(2):
        assert torch.equal(f(w)[0], X * 2 > 2)
    assert torch.is_grad_enabled()
    assert modes == [False, False]


def test_other_threads_run_during_a_long_run():
    big = torch.zeros(1 << 22)
    b = Build(big)
    r = b.storage(big)
    b.op("add", [b.args[0], _core.Number(1)], [r])
    for _ in range(20):
        b.op("add", [r, _core.Number(1)], [r])
    f = b.function(r)
    if f.plan(big).counts()["cost_ns"] <= 5000:
        pytest.skip("the plan counts as short")
    f(big)
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(running)

    running = False
    thread = threading.Thread(target=tick)
    thread.start()
    running = True
    (z,) = f(big)
    running = False
    stop.set()
    thread.join()
    assert z[0] == 21
    assert sum(ticks) > 0


# ---- collectives


class Work:
    def __init__(self, log, fails=False):
        self.log, self.fails = log, fails

    def wait(self):
        self.log.append("wait")
        if self.fails:
            raise TimeoutError("a peer is gone")
        return True


def gather_function(start, after=None):
    source, destination = torch.ones(4), torch.zeros(8)
    b = Build(destination, source)
    group = b.program.add_group("g", "0", 2, 0)
    b.recipes.append(_core.Recipe(start, None, (), {}, []))
    b.program.add_operation("all_gather", [b.args[1]], [b.args[0]], group=group, host_id=0)
    if after is not None:
        b.extern(after, (S(0),), [b.args[1]], effects=0)
    b.program.add_operation("fence", [], [b.args[0]])
    return b.function(b.args[0]), destination, source


def test_a_collective_gets_the_callers_tensors_and_is_waited_for():
    log = []
    f, destination, source = gather_function(lambda d, s: log.append((d, s)) or Work(log))
    assert f(destination, source)[0] is destination
    assert log[0][0] is destination
    assert log[0][1] is source
    assert log[1:] == ["wait"]
    assert destination._version > 0
    assert source._version == 0


def test_a_failing_wait_is_the_callers_exception():
    f, destination, source = gather_function(lambda d, s: Work([], True))
    with pytest.raises(TimeoutError, match="a peer is gone"):
        f(destination, source)


def test_works_in_flight_are_waited_for_when_a_run_fails():
    log = []

    def after(t):
        raise KeyError("between")

    f, destination, source = gather_function(lambda d, s: Work(log), after)
    with pytest.raises(KeyError):
        f(destination, source)
    assert log == ["wait"]


# ---- version counters


def test_a_written_argument_gets_a_new_version():
    b = Build(X, X)
    b.op("add", b.args, [b.args[0]])
    f = b.function(b.args[0])
    x, y = X.clone(), X.clone()
    f(x, y)
    assert x._version == 1
    assert y._version == 0


def test_a_written_inference_tensor_needs_no_version():
    b = Build(X, X)
    b.op("add", b.args, [b.args[0]])
    f = b.function(b.args[0])
    with torch.inference_mode():
        x = X.clone()
        f(x, X)
    f(x, X)
    assert torch.equal(x, X * 3)


def test_an_extern_that_writes_a_view_bumps_the_argument():
    b = Build(X)
    row = b.view(b.args[0], X[1], 16)
    b.extern(lambda t: t.zero_(), (S(0),), [row], writes=[row])
    f = b.function(b.args[0])
    x = X.clone()
    f(x)
    assert x._version == 1
    assert x[1].abs().sum() == 0


@pytest.mark.parametrize("kernels", ["native", "extern"])
def test_versions_are_bumped_when_a_run_fails_midway(kernels):
    def call(t):
        raise ValueError("late")

    b = Build(X, X)
    b.recipes.append(_core.Recipe(torch.add, torch.add, (S(0), S(1)), {}, [0]))
    out = _core.EFFECT_OUT | _core.EFFECT_OUT_LAYOUT
    b.op("add", b.args, [b.args[0]], host_id=0, effects=out)
    b.extern(call, (S(0),), [b.args[1]], effects=_core.EFFECT_AUDITED | _core.EFFECT_RAISES)
    f = b.function(b.args[0], kernels=kernels)
    x, y = X.clone(), X.clone()
    with pytest.raises(ValueError, match="late"):
        f(x, y)
    assert x._version == 1
    assert y._version == 0


def test_a_copy_on_write_argument_is_made_its_own_before_it_is_written():
    b = Build(X, X)
    b.op("add", b.args, [b.args[0]])
    f = b.function(b.args[0])
    origin = X.clone()
    x = origin._lazy_clone()
    f(x, X)
    assert torch.equal(origin, X)
    assert torch.equal(x, X + X)


def test_a_copy_on_write_argument_is_not_copied_when_it_is_only_read(probes):
    f = add_function(X, X)
    origin = X.clone()
    x = origin._lazy_clone()
    assert torch.equal(f(x, X)[0], X + X)
    address = getattr(torch._C, "_data_address", None)
    if probes["data_pointers"] and address is not None:
        assert address(x) == address(origin)


# ---- bad arguments


class Sub(torch.Tensor):
    pass


def refused():
    yield "subclass", X.as_subclass(Sub), TypeError, "argument 1"
    yield "no tensor", "3", TypeError, "argument 1"
    yield "an integer", 3, ValueError, "argument 1"
    yield "meta", torch.empty(3, 4, device="meta"), TypeError, "argument 1"
    yield "sparse", X.to_sparse(), TypeError, "argument 1"
    yield "dtype", X.double(), ValueError, "argument"
    yield "sizes", torch.zeros(4, 3), ValueError, "argument"
    yield "strides", torch.zeros(4, 3).t(), ValueError, "argument"


@pytest.mark.parametrize(
    ("tensor", "error", "words"),
    [pytest.param(*r[1:], id=r[0]) for r in refused()],
)
def test_an_argument_that_does_not_fit_is_named(tensor, error, words):
    f = add_function(X, X)
    f(X, X)
    with pytest.raises(error, match=words):
        f(X, tensor)
    assert torch.equal(f(X, X)[0], X + X)


def test_conjugate_and_negative_views_are_refused():
    c = torch.zeros(3, dtype=torch.complex64)
    b = Build(c)
    f = b.function(b.args[0])
    with pytest.raises(TypeError, match="argument 0"):
        f(c.conj())
    b = Build(c.imag)
    with pytest.raises(TypeError, match="argument 0"):
        b.function(b.args[0])(c.conj().imag)


def test_a_number_of_arguments_that_does_not_fit_is_named():
    f = add_function(X, X)
    with pytest.raises(ValueError, match="1 arguments for a function of 2"):
        f(X)
    with pytest.raises(TypeError):
        f(X, y=X)


def test_a_freed_storage_is_an_error_before_any_effect():
    f = add_function(X, X)
    x = X.clone()
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError):
        f(x, X)
    x = X.clone()
    x.untyped_storage().resize_(16)
    with pytest.raises(RuntimeError):
        f(x, X)


def test_tensors_without_elements_come_and_go():
    x = torch.empty(0, 4)
    f = add_function(x, x)
    (z,) = f(x, x)
    assert z.shape == (0, 4)
    b = Build(x)
    v = b.view(b.args[0], torch.empty(4, 0).t(), 0)
    (z,) = b.function((v, {"is_view": True}))(torch.zeros(5, 4)[5:])
    assert z.shape == (0, 4)


def test_more_than_64_arguments_work():
    many = [torch.full((2,), float(i)) for i in range(70)]
    b = Build(*many)
    r = b.storage(many[0])
    b.op("add", [b.args[0], b.args[69]], [r])
    assert b.function(r, b.args[68])(*many)[0].tolist() == [69.0, 69.0]


# ---- building


def test_negative_sizes_are_named():
    p = _core.Program("p")
    with pytest.raises(ValueError, match="dim 1 names no expression"):
        p.add_argument(None, 8, (1, -2), (1, 1))
    with pytest.raises(ValueError, match="2 sizes with 1 strides"):
        p.add_argument(None, 8, (1, 2), (1,))


def test_wrong_elements_are_named():
    b = Build(X)
    with pytest.raises(TypeError, match="recipe 0"):
        _core.Function(b.program, {}, [1], [])
    with pytest.raises(ValueError, match="option order"):
        _core.Function(b.program, {"order": "random"}, [], [])
    with pytest.raises(ValueError, match="no option speed"):
        _core.Function(b.program, {"speed": 1}, [], [])
    with pytest.raises(ValueError, match="output 0 is number 3"):
        _core.Function(b.program, {}, [], [_core.Output(3)])


def test_a_wrong_text_is_a_syntax_error():
    with pytest.raises(SyntaxError):
        _core.Program.parse("nonsense")


def test_initialize_runs_once():
    with pytest.raises(RuntimeError, match="called before"):
        _core.initialize(
            tensor_type=torch.Tensor,
            parameter_type=torch.nn.Parameter,
            torch_library=torch._C.__file__,
            strict_error=RuntimeError,
            helpers={},
            forced_off=frozenset(),
        )


# ---- plans, lifetimes


def test_a_plan_outlives_its_function():
    f = add_function(X, X)
    plan = f.plan(X, X)
    assert f.counts()["calls"] == 0
    f(X, X)
    assert len(f.plans()) == 1
    assert f.counts()["calls"] == 1
    assert f.counts()["plans"] == 1
    f.reset_counts()
    assert f.counts()["calls"] == 0
    gone = weakref.ref(f)
    del f
    assert gone() is None
    assert plan.text()
    assert plan.counts()["instructions"] >= 1
    assert plan.copies() == []
    assert weakref.ref(plan)() is plan


def test_externs_of_a_plan_have_their_lines():
    b = Build(X)
    r = b.storage(X)
    b.extern(lambda t: t + 1, (S(0),), [b.args[0]], returns=[r])
    plan = b.function(r).plan(X)
    assert plan.externs() == [{"target": "test.call", "file": "t.py", "line": 7}]


def test_a_function_in_a_cycle_is_collected():
    def cycle():
        held = []
        b = Build(X)
        r = b.storage(X)
        b.extern(lambda t: t + len(held), (S(0),), [b.args[0]], returns=[r])
        f = b.function(r)
        held.append(f)
        f(X)
        return weakref.ref(f)

    gone = cycle()
    gc.collect()
    assert gone() is None


def test_results_do_not_leak():
    f = add_function(X, X)
    gone = [weakref.ref(f(X, X)[0]) for _ in range(3)]
    assert all(g() is None for g in gone)


# ---- bound


def test_bound_runs_and_lays_out_results():
    b = Build(X, X)
    r, s = b.storage(X), b.storage(X)
    b.op("add", b.args, [r])
    b.op("add", [r, _core.Number(1)], [s])
    f = b.function(r, s)
    missed = []
    held = X.clone()
    bound = _core.Bound(
        f, [1, held], {0: "mode"}, 2, ("dict", {"a": 1, "b": ("list", [0, ("tuple", [0])])}),
        lambda *a, **k: missed.append((a, k)) or "missed",
    )  # fmt: skip
    got = bound("mode", X)
    assert torch.equal(got["a"], X * 2 + 1)
    assert got["b"][0] is got["b"][1][0]
    assert bound("other", X) == "missed"
    assert bound("mode", X, 1) == "missed"
    assert bound("mode", x=X) == "missed"
    assert bound("mode", X.double()) == "missed"
    assert bound("mode", X.as_subclass(Sub)) == "missed"
    assert bound("mode", "x") == "missed"
    wants = torch.zeros(3, 4, requires_grad=True)
    assert bound("mode", wants) == "missed"
    with torch.no_grad():
        assert torch.equal(bound("mode", wants)["a"], X + 1)
    assert bound.calls == 9
    assert bound.misses == 7
    assert len(missed) == 7
    held.add_(1)
    assert torch.equal(bound("mode", X)["b"][0], X * 2 + 1)


def test_bound_checks_its_parts():
    f = add_function(X, X)
    with pytest.raises(ValueError, match="1 sources for a function of 2"):
        _core.Bound(f, [0], {}, 1, 0, print)
    with pytest.raises(ValueError, match="position 2 of 2"):
        _core.Bound(f, [0, 2], {}, 2, 0, print)
    with pytest.raises(ValueError, match="output 1 of 1"):
        _core.Bound(f, [0, 1], {}, 2, 1, print)
    with pytest.raises(TypeError, match="no tree"):
        _core.Bound(f, [0, 1], {}, 2, ("set", [0]), print)


def test_an_exception_in_a_bound_run_is_no_miss():
    def call(t):
        raise TypeError("mine")

    b = Build(X)
    r = b.storage(X)
    b.extern(call, (S(0),), [b.args[0]], returns=[r])
    bound = _core.Bound(b.function(r), [0], {}, 1, 0, lambda *a: "missed")
    with pytest.raises(TypeError, match="mine"):
        bound(X)
    assert bound.misses == 0


# ---- from_blob


def test_from_blob_reads_and_writes_the_owners_bytes():
    class Owner:
        def __init__(self):
            self.bytes = (ctypes.c_float * 12)(*range(12))

    owner = Owner()
    gone = weakref.ref(owner)
    t = _core.from_blob(ctypes.addressof(owner.bytes), (3, 2), (4, 1), torch.float32, owner)
    assert t.tolist() == [[0, 1], [4, 5], [8, 9]]
    t[0, 0] = 7
    assert owner.bytes[0] == 7
    view = t[1]
    del owner, t
    gc.collect()
    assert gone() is not None
    del view
    gc.collect()
    assert gone() is None


def test_from_blob_checks_its_numbers():
    with pytest.raises(ValueError, match="one length"):
        _core.from_blob(64, (3,), (1, 1), torch.float32, None)
    with pytest.raises(TypeError, match="no dtype"):
        _core.from_blob(64, (3,), (1,), torch.qint8, None)
    assert _core.from_blob(0, (0, 3), (3, 1), torch.float32, None).shape == (0, 3)
