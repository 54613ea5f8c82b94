"""From a graph to a program: what each spelling of a move, view or write becomes.

The programs run on the reference core, so that a wrong result here is the importer's.
"""

import pytest
import torch
import torch.nn.functional as F
from compare import check_same, range_tensor

from uncopy.capture import capture, held_tensors
from uncopy.fallback import Reason, Unplannable, check_plannable
from uncopy.importer import import_graph


class Importing:
    """A backend that imports and runs on the reference core; keeps what it imported last."""

    def __init__(self, core):
        self.core = core
        self.imported = None
        self.problem = None

    def __call__(self, graph, example_inputs):
        try:
            check_plannable(graph, example_inputs, list(held_tensors(graph).values()))
            self.imported = import_graph(capture(graph, example_inputs), "test")
        except Unplannable as problem:
            self.problem = problem
            return graph.forward
        imported = self.imported
        function = self.core.Function(imported.program, {}, imported.recipes, imported.outputs)
        return lambda *args: function(*args, *imported.held)

    @property
    def names(self):
        return self.imported.program.names()


@pytest.fixture
def check(reference):
    """A check: compares with eager and returns the names of the program's operations."""

    def run(fn, build):
        backend = Importing(reference)
        with torch.no_grad():
            compiled = torch.compile(fn, backend=backend, fullgraph=True)
            check_same(fn, build, compiled, calls=2, metadata=False)
        assert backend.problem is None, backend.problem
        return backend.names

    return run


@pytest.fixture
def refuse(reference):
    """A refusal: checks that the graph is not importable, and returns the reason."""

    def run(fn, build, **more):
        backend = Importing(reference)
        with torch.no_grad():
            check_same(fn, build, torch.compile(fn, backend=backend, fullgraph=True, **more))
        assert backend.problem is not None
        return backend.problem.reason

    return run


def square(dtype=torch.float32):
    return lambda: (range_tensor(4, 4, dtype=dtype),)


VIEWS = {
    "slice": lambda x: x[1:3],
    "select": lambda x: x[2],
    "transpose": lambda x: x.t(),
    "permute": lambda x: x.permute(1, 0),
    "expand": lambda x: x[:1].expand(5, 4),
    "reshape": lambda x: x.reshape(2, 8),
    "flatten": lambda x: x.flatten(),
    "squeeze and unsqueeze": lambda x: x.unsqueeze(1).squeeze(1),
    "as_strided relative": lambda x: x[1:].as_strided((2, 2), (4, 1)),
    "as_strided absolute": lambda x: x[1:].as_strided((2, 2), (4, 1), 0),
    "unfold": lambda x: x.unfold(0, 2, 1),
    "diagonal": lambda x: x.diagonal(1),
    "view as another dtype": lambda x: x.view(torch.int32),
    "view as a smaller dtype": lambda x: x.view(torch.int16)[1],
    "view_as_complex": lambda x: torch.view_as_complex(x.view(4, 2, 2)),
    "movedim": lambda x: x.movedim(0, 1),
    "detach": lambda x: x.detach(),
    "alias": lambda x: x[...],
    "split": lambda x: x.split(2),
    "chunk of columns": lambda x: x.chunk(2, dim=1),
    "unbind": lambda x: x.unbind(1),
    "nothing": lambda x: (x.contiguous(), x.to(torch.float32)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_an_argument_is_no_operation(check, name):
    assert check(VIEWS[name], square()) == []


def test_view_offsets_count_from_the_argument_not_from_its_storage(check):
    def build():
        base = range_tensor(20)
        return base[4:12], base

    assert check(lambda part, base: part[2:].view(2, 3), build) == []


def test_absolute_as_strided_counts_from_the_callers_storage(reference):
    def fn(part):
        return part.as_strided((2, 2), (3, 1), 5).neg_()

    backend = Importing(reference)
    compiled = torch.compile(fn, backend=backend, fullgraph=True)
    for start in (0, 2, 3):
        check_same(fn, lambda s=start: (range_tensor(12)[s : s + 5],), compiled, metadata=False)


def test_views_of_an_absolute_view_stay_absolute(reference):
    def fn(part):
        return part.as_strided((4, 2), (2, 1), 1)[1:].add_(1)

    backend = Importing(reference)
    compiled = torch.compile(fn, backend=backend, fullgraph=True)
    for start in (0, 5):
        check_same(fn, lambda s=start: (range_tensor(16)[s : s + 5],), compiled, metadata=False)


def test_in_place_view_changes_of_intermediates_are_views(check):
    def fn(x):
        y = x + 1
        y.t_()
        y.unsqueeze_(0)
        y.squeeze_(0)
        y.transpose_(0, 1)
        return y.mul_(2)

    assert check(fn, square()) == ["add", "mul"]


def test_set_makes_an_intermediate_a_view_of_its_source(check):
    def fn(x):
        y = x * 2
        z = torch.empty(0)
        z.set_(y)
        return z.add_(1), y

    assert check(fn, square()) == ["mul", "add"]


MOVES = {
    "copy_": (lambda x: x[0].copy_(x[1]), ["copy"]),
    "copy_ broadcasts": (lambda x: x.copy_(x[:1].clone()), ["copy", "copy"]),
    "copy_ of a scalar tensor": (lambda x: x.copy_(x[1, 1].clone()), ["copy", "copy"]),
    "copy_ converts": (lambda x: x.copy_(x.to(torch.int32)), ["convert", "convert"]),
    "clone": (lambda x: x.clone(), ["copy"]),
    "contiguous": (lambda x: x.t().contiguous(), ["copy"]),
    "reshape that copies": (lambda x: x.t().reshape(-1), ["copy"]),
    "to": (lambda x: x.to(torch.bfloat16), ["convert"]),
    "float and back": (lambda x: x.to(torch.float64).float(), ["convert", "convert"]),
    "cat": (lambda x: torch.cat([x, x * 2], 1), ["mul", "copy", "copy"]),
    "cat of dtypes": (lambda x: torch.cat([x, x.long()]), ["convert", "copy", "convert"]),
    "cat with an empty one": (lambda x: torch.cat([torch.empty(0), x]), ["copy"]),
    "stack": (lambda x: torch.stack([x, x], -1), ["copy", "copy"]),
    "pad": (lambda x: F.pad(x, (1, 2), value=3.0), ["fill", "copy"]),
    "pad and crop": (lambda x: F.pad(x, (-1, 2, 1, -1)), ["fill", "copy"]),
    "crop": (lambda x: F.pad(x, (-1, -1)), ["copy"]),
    "slice_scatter": (
        lambda x: torch.slice_scatter(x, x[:2].neg(), 0, 0, 4, 2),
        ["neg", "copy", "copy"],
    ),
    "select_scatter": (lambda x: torch.select_scatter(x, x[0], 1, 2), ["copy", "copy"]),
    "diagonal_scatter": (lambda x: torch.diagonal_scatter(x, x[0], 0), ["copy", "copy"]),
    "as_strided_scatter": (
        lambda x: torch.as_strided_scatter(x.neg(), x[0, :2].clone(), (2,), (3,), 1),
        ["neg", "copy", "copy", "copy"],
    ),
    "expand_copy": (lambda x: torch.expand_copy(x[:1], (3, 4)), ["copy"]),
    "functional copy": (lambda x: torch.ops.aten.copy(x, x[:1]), ["copy"]),
    "zeros and slices": (lambda x: torch.zeros(4).copy_(x[1]), ["fill", "copy"]),
    "full": (lambda x: torch.full((2, 2), 7, dtype=torch.int16), ["fill"]),
    "ones_like": (lambda x: torch.ones_like(x), ["fill"]),
    "new_full": (lambda x: x.new_full((3,), 2.5), ["fill"]),
    "fill_": (lambda x: x[1:].fill_(3), ["fill"]),
    "zero_": (lambda x: x[:, 1].zero_(), ["fill"]),
    "empty": (lambda x: torch.empty_like(x).copy_(x), ["copy"]),
    "set a slice": (lambda x: x[1:3].copy_(x[:1].expand(2, 4).clone()), ["copy", "copy"]),
}


@pytest.mark.parametrize("name", MOVES)
def test_every_spelling_of_a_move_is_a_copy_convert_or_fill(check, name):
    fn, expected = MOVES[name]
    assert check(fn, square()) == expected


def test_setting_elements_by_a_number_copies_a_constant(check):
    def fn(x):
        x[1] = 7
        x[2:, :2] = 0.5
        return x * 1

    assert set(check(fn, square())) <= {"copy", "fill", "mul"}


ROWS = {
    "add with alpha": (lambda x: torch.add(x, x, alpha=2), ["add"]),
    "add a number": (lambda x: x + 0.5, ["add"]),
    "add in place": (lambda x: x.add_(x[:1].clone()), ["copy", "add"]),
    "broadcast": (lambda x: x[:, :1] * x[1], ["mul"]),
    "out": (lambda x: torch.mul(x[0], 2, out=x[1]), ["mul"]),
    "compare": (lambda x: x > 3, ["gt"]),
    "where": (lambda x: torch.where(x > 3, x, -x), ["gt", "neg", "where"]),
    "divide": (lambda x: x / 3, ["div"]),
    "subtract from a number": (lambda x: 1 - x, ["sub"]),
    "subtract reversed": (lambda x: torch.rsub(x, x[:1], alpha=2), ["sub"]),
    "relu_": (lambda x: (x - 5).relu_(), ["sub", "relu"]),
    "mm": (lambda x: x @ x.t(), ["matmul"]),
    "bmm": (lambda x: torch.bmm(x.view(1, 4, 4), x.view(1, 4, 4)), ["matmul"]),
    "mm out": (lambda x: torch.mm(x, x, out=torch.empty(4, 4)), ["matmul"]),
}


@pytest.mark.parametrize("name", ROWS)
def test_an_operation_with_a_row_takes_it(check, name):
    fn, expected = ROWS[name]
    assert check(fn, square()) == expected


HOST = {
    "int and float": (lambda x: x.int() + 0.5, ["convert", "aten.add.Tensor"]),
    "int and bool": (lambda x: (x > 2) + 1, ["gt", "aten.add.Tensor"]),
    "two dtypes": (lambda x: x + x.double(), ["convert", "aten.add.Tensor"]),
    "0-dim of another dtype": (
        lambda x: x.bfloat16() * x[0, 1],
        ["convert", "aten.mul.Tensor"],
    ),
    "int divided": (lambda x: x.int() / 2, ["convert", "aten.div.Tensor"]),
    "rounding mode": (
        lambda x: torch.div(x, 3, rounding_mode="floor"),
        ["aten.div.Tensor_mode"],
    ),
    "int compared with a float": (lambda x: x.int() > 0.5, ["convert", "aten.gt.Scalar"]),
    "integer mm": (lambda x: x.int() @ x.int(), ["convert", "convert", "aten.mm.default"]),
    "complex to real": (
        lambda x: x.to(torch.complex64).to(torch.complex128),
        ["aten._to_copy.default", "aten._to_copy.default"],
    ),
}


@pytest.mark.parametrize("name", HOST)
def test_what_a_row_does_not_compute_the_host_runs(check, name):
    fn, expected = HOST[name]
    names = check(fn, square())
    assert [n for n in names if n != "convert"] == [n for n in expected if n != "convert"]


def test_writes_into_overlapping_elements_are_the_hosts(check):
    def fn(x):
        windows = (x - 3).unfold(1, 3, 1)
        windows.clamp_(min=0)
        return windows, x.as_strided((3, 4), (2, 1)).mul_(1)

    assert "mul" not in check(fn, square())


def test_a_multiple_result_is_taken_apart(check):
    def fn(x):
        values, indices = x.sort(descending=True)
        return values + 1, indices, x.std(), torch.topk(x, 2).values

    names = check(fn, square())
    assert names[0] == "aten.sort.stable" or names[0] == "aten.sort.default"


def test_out_arguments_of_the_hosts_operators_are_written(check):
    def fn(x):
        values, indices = torch.empty(4), torch.empty(4, dtype=torch.int64)
        torch.max(x, 0, out=(values, indices))
        torch.cumsum(x[0], 0, out=x[1])
        return values, indices

    check(fn, square())


def test_foreach_operators_write_their_lists(check):
    def fn(x):
        parts = [x[0], x[1]]
        torch._foreach_add_(parts, [x[2], x[3]])
        return torch._foreach_mul(parts, 2)

    check(fn, square())


def test_batch_norm_writes_its_running_statistics(check):
    def build():
        return range_tensor(4, 3), torch.zeros(3), torch.ones(3)

    def fn(x, mean, variance):
        return F.batch_norm(x, mean, variance, training=True)

    names = check(fn, build)
    assert names == ["aten.native_batch_norm.default"]


def test_random_numbers_keep_their_order(check):
    def fn(x):
        return F.dropout(x, 0.5), torch.rand(3), torch.empty(3).uniform_()

    check(fn, square())


def test_a_result_given_twice_is_one_object(check):
    def fn(x):
        y = x + 1
        return y, y.mul_(2), x.add_(1)

    check(fn, square())


def test_constants_and_none_are_results(check):
    check(lambda x: (x + 1, None, 3, {"a": x.t()}), square())


def test_tensors_held_by_the_graph_are_arguments(reference):
    weight = torch.nn.Parameter(range_tensor(3))
    weight.grad = torch.ones(3)
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.9)
    backend = Importing(reference)
    torch.compile(optimizer.step, backend=backend)()
    assert backend.problem is None
    assert len(backend.imported.held) == 1
    assert torch.equal(weight.detach(), range_tensor(3) - 0.5)


def test_source_lines_reach_the_program(reference):
    backend = Importing(reference)

    def fn(x):
        return x * 2

    torch.compile(fn, backend=backend)(range_tensor(3))
    operation = backend.imported.program.operations[0]
    assert operation.more["file"] == "test_importer.py"
    assert operation.more["line"] == fn.__code__.co_firstlineno + 1


def test_arguments_have_the_callers_names(reference):
    backend = Importing(reference)

    def fn(w_buffer, x):
        return w_buffer @ x

    torch.compile(fn, backend=backend)(range_tensor(3, 3), range_tensor(3, 3))
    assert [v.name for v in backend.imported.program.views[:2]] == ["w_buffer", "x"]


@pytest.fixture(scope="module")
def operators():
    """Operators of a user: one that writes, one that returns its argument."""

    def bump(t):
        t.add_(1)

    library = torch.library.Library("uncopy_test_importer", "DEF")
    library.define("bump_(Tensor(a!) t) -> ()")
    library.impl("bump_", bump, "CompositeExplicitAutograd")
    library.define("same(Tensor(a) t) -> Tensor(a)")
    library.impl("same", lambda t: t, "CompositeExplicitAutograd")
    library.define("pair(Tensor(a!) t, Tensor u) -> (Tensor, Tensor)")
    library.impl("pair", lambda t, u: (t.add_(1) * 2, u * 3), "CompositeExplicitAutograd")
    yield torch.ops.uncopy_test_importer
    library._destroy()


def test_a_users_operator_is_called_as_it_is(check, operators):
    def fn(x):
        operators.bump_(x[1:])
        operators.bump_(x)
        a, b = operators.pair(x[0], x[1])
        return a, b, operators.same(x)

    names = check(fn, square())
    assert names[0] == "uncopy_test_importer.bump_.default"
    assert names[-1] == "uncopy_test_importer.same.default"


def test_effects_of_a_users_operator_are_unknown(reference, operators):
    backend = Importing(reference)
    torch.compile(lambda x: operators.bump_(x), backend=backend)(range_tensor(3))
    effects = backend.imported.program.operations[0].effects
    assert not effects & reference.EFFECT_AUDITED
    assert effects & reference.EFFECT_RANDOM


def test_effects_of_aten_operators(reference):
    backend = Importing(reference)

    def fn(x, i):
        return x.softmax(-1), F.embedding(i, x), torch.rand_like(x)

    torch.compile(fn, backend=backend)(range_tensor(4, 4), torch.tensor([1]))
    effects = {o.target: o.effects for o in backend.imported.program.operations}
    softmax = effects["aten._softmax.default"]
    assert softmax & reference.EFFECT_AUDITED
    assert softmax & reference.EFFECT_OUT
    assert not softmax & (reference.EFFECT_RAISES | reference.EFFECT_RANDOM)
    assert effects["aten.embedding.default"] & reference.EFFECT_RAISES
    assert effects["aten.rand_like.default"] & reference.EFFECT_RANDOM


def test_an_order_mark_is_an_order(check):
    def fn(x, y):
        y.add_(1)
        torch.ops.uncopy.wait.default(x, y)
        return x * 2

    assert check(fn, lambda: (range_tensor(3), range_tensor(3))) == ["add", "order", "mul"]


def test_refusals_have_reasons(refuse):
    conjugate = refuse(lambda x: torch.view_as_complex(x.view(8, 2)).conj(), square())
    assert conjugate is Reason.CONJUGATE
    assert refuse(lambda x: x.reshape((1,) * 11 + (4, 4)).add(1), square()) is Reason.RANK


def test_a_view_beyond_its_storage_is_refused(reference):
    backend = Importing(reference)
    fn = torch.compile(lambda x: (x + 1).as_strided((4, 4), (1, 4)).sum(), backend=backend)
    with pytest.raises(RuntimeError):
        fn(range_tensor(4))
    assert backend.imported is None


def test_changing_a_callers_tensor_is_refused(reference):
    def fn(a, b):
        a.data = b
        return a * 2

    backend = Importing(reference)
    a, b = range_tensor(4), range_tensor(4) + 9
    torch.compile(fn, backend=backend)(a, b)
    assert backend.problem.reason is Reason.DATA_SWAP
    assert a.data_ptr() == b.data_ptr()
