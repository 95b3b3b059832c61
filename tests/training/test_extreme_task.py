"""The task with very many classes: sparse examples, the model around the layer, its loss."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import dtoolkit as dt
from dtoolkit.training import tasks
from dtoolkit.training.loaded import digest
from dtoolkit.training.slide import FullLinear, RowSparseAdam
from dtoolkit.training.slide.bag import BagLinear
from dtoolkit.training.sparse_examples import Bags, SparseExamples


def test_rows_are_taken_in_any_order() -> None:
    dense = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 4, 0]], np.float32)
    labels = csr_array(np.eye(3, 5, dtype=np.float32))
    examples = SparseExamples(csr_array(dense), labels)
    assert len(examples) == 3
    inputs, targets = examples.take(torch.tensor([2, 1, 0, 2]))
    assert inputs.rows == 4
    assert inputs.counts.tolist() == [2, 0, 2, 2]
    assert inputs.row_of.tolist() == [0, 0, 2, 2, 3, 3]
    assert inputs.ids.tolist() == [0, 2, 1, 3, 0, 2]
    assert inputs.values.tolist() == [3, 4, 2, 1, 3, 4]
    assert targets.ids.tolist() == [2, 1, 0, 2]
    none, _ = examples.take(torch.empty(0, dtype=torch.int64))
    assert none.starts.tolist() == [0]
    assert digest(examples.to("cpu")) == digest(examples)
    assert digest(SparseExamples(csr_array(2 * dense), labels)) != digest(examples)
    with pytest.raises(ValueError, match="inputs has 3 rows and targets 2"):
        SparseExamples(dense, np.eye(2))
    with pytest.raises(ValueError, match="no rows"):
        SparseExamples(csr_array((0, 4)), csr_array((0, 4)))


def test_a_layer_of_bags_is_a_linear_layer() -> None:
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(7, 11, generator=generator) * (torch.rand(7, 11, generator=generator) < 0.4)
    dense[3] = 0
    inputs = Bags.of(dense.numpy())
    slope = torch.randn(7, 5, generator=generator)
    factors, plain = BagLinear(11, 5), BagLinear(11, 5, factors=False)
    plain.load_state_dict(factors.state_dict())
    for layer in (factors, plain):
        outputs = layer(inputs)
        want = dense @ layer.weight + layer.bias
        assert torch.allclose(outputs, want, atol=1e-6)
        (outputs * slope).sum().backward()
    assert plain.weight.grad is not None
    assert torch.allclose(plain.weight.grad, dense.T @ slope, atol=1e-5)
    assert factors.weight.grad is None
    made = factors.weight.row_gradient.sparse()[0].to_dense()  # type: ignore[attr-defined]
    assert torch.allclose(made, dense.T @ slope, atol=1e-5)
    assert torch.allclose(factors.bias.grad, slope.sum(0))  # type: ignore[arg-type]
    (factors(inputs) * slope).sum().backward()  # gradients add up until they are used
    made = factors.weight.row_gradient.sparse()[0].to_dense()  # type: ignore[attr-defined]
    assert torch.allclose(made, 2 * dense.T @ slope, atol=1e-5)


def test_the_loss_is_cross_entropy() -> None:
    data = dt.data.extreme(40, 30, 60, seed=1, labels=3)
    torch.manual_seed(0)
    full = tasks.extreme(data, hidden=8, output="full")
    model: Any = full.model()
    inputs, labels = full.train.take(torch.arange(12))  # type: ignore[union-attr]
    labels = Bags(torch.cat([torch.zeros(1).long(), labels.starts]), labels.ids, labels.values)
    inputs = Bags(torch.cat([torch.zeros(1).long(), inputs.starts]), inputs.ids, inputs.values)
    logs = model(inputs).log_softmax(1)  # the first sample has no features and no labels
    want = [0.0]
    for row in range(1, 13):
        own = labels.ids[labels.starts[row] : labels.starts[row + 1]]
        want.append(float(-logs[row, own].detach().mean()))
    assert model.loss(inputs, labels).tolist() == pytest.approx(want, rel=1e-5)
    model.eval()
    with torch.no_grad():
        assert model.loss(inputs, labels).tolist() == pytest.approx(want, rel=1e-5)
        best = model(inputs).argmax(1)
        right = full.metrics["precision"](model, inputs, labels)
    assert torch.equal(model.best(inputs), best)
    for row in range(13):
        own = labels.ids[labels.starts[row] : labels.starts[row + 1]].tolist()
        assert float(right[row]) == float(int(best[row]) in own)


def test_all_active_is_the_full_softmax() -> None:
    """The same model by dense gradients and Adam, and by rows with all classes active."""
    data = dt.data.extreme(40, 30, 60, seed=1, labels=2)
    full = tasks.extreme(data, hidden=8, output="full", lr=0.01)
    rows = tasks.extreme(data, hidden=8, output=FullLinear, lr=0.01)
    models: list[Any] = []
    for one in (full, rows):
        torch.manual_seed(0)
        models.append(one.model())
    models[1].load_state_dict({**models[1].state_dict(), **models[0].state_dict()})
    batch = torch.arange(48)
    for step in range(3):
        losses = []
        for one, model in zip((full, rows), models, strict=True):
            optimizer = vars(model).setdefault("stepping", one.optimizer(list(model.parameters())))
            loss = one.loss(model, *one.train.take(batch)).mean()  # type: ignore[union-attr]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        assert losses[0] == pytest.approx(losses[1], rel=1e-5), step
    assert isinstance(vars(models[1])["stepping"], RowSparseAdam)


def test_the_model_is_made_by_the_seed_of_the_run(cluster2: dt.Cluster) -> None:
    made = partial(dt.data.extreme, 60, 40, 100, seed=2)
    task = tasks.extreme(made, hidden=8, batch=20, tables=3, hashes=1, test_samples=7)
    assert len(task.test()) == 7  # type: ignore[operator,misc]
    runs = [dt.train(cluster2, task, "dslide", steps=2, seed=seed) for seed in (0, 0, 1)]
    first, same, other = (run.state.model["output.weight"] for run in runs)
    assert torch.equal(first, same)
    assert not torch.allclose(first, other, atol=0.05)
    full = tasks.extreme(made, hidden=8, batch=20, output="full")
    run = dt.train(cluster2, full, "data-parallel", steps=2)
    assert 0 <= run.history["test_precision"].iloc[-1] <= 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": 3}, "data is int: wanted a dtoolkit.data.LabelledSamples"),
        ({"hidden": 0}, "hidden=0"),
        ({"lr": 0}, "lr=0"),
        ({"output": "half"}, "output='half': wanted 'slide', 'full', or a callable"),
        ({"output": "full", "tables": 3}, "tables: settings of output='slide', not of 'full'"),
        ({"tables": 0}, "tables=0"),
        ({"hash_hidden": {"tables": 0}}, "tables=0"),
        ({"hash_hidden": {}, "output": "full"}, "output='full' computes all, in both layers"),
        ({"batch": 0}, "batch=0"),
        ({"test_samples": 0}, "test_samples=0"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        tasks.extreme(**{"data": partial(dt.data.extreme, 10, 10, 10), **changes})
