from __future__ import annotations

import pytest
import torch
from torch import nn

from dtoolkit.sparsity import NeuroPrune, attention_penalty, degree_penalty


def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 1), nn.Linear(16, 3))


def test_degree_penalty_by_hand():
    weight = torch.tensor([[1.0, -2.0, 0.0, 0.0], [0.5, 0.0, 5e-5, 0.0], [0.0, 5e-5, 0.0, 0.0]])
    # Shares of connections: 2/4, 1/4, and 1/4 at least for a row that has none.
    wanted = 3 / 0.5 + 0.50005 / 0.25 + 5e-5 / 0.25
    assert degree_penalty(weight).item() == pytest.approx(wanted)
    assert degree_penalty(weight, threshold=1e-5).item() == pytest.approx(
        3 / 0.5 + 0.50005 / 0.5 + 5e-5 / 0.25
    )
    weight.requires_grad_()
    degree_penalty(weight).backward()
    assert weight.grad[:2].tolist() == [[2.0, -2.0, 0.0, 0.0], [4.0, 0.0, 4.0, 0.0]]


def test_attention_penalty_by_hand():
    query = torch.tensor([[1.0, -2.0], [0.0, 0.0]], requires_grad=True)
    key = torch.tensor([[3.0, 0.0], [0.0, 0.0]], requires_grad=True)
    value = torch.tensor([[-3.0, 0.0], [0.0, 1e-9]], requires_grad=True)
    penalty = attention_penalty(query, key, value)
    assert penalty.item() == pytest.approx(3 + 1e-9**0.5)
    penalty.backward()
    assert query.grad[0].tolist() == pytest.approx([1 / 6, -1 / 6])
    # Towards 0 the pull stays that of a row at the threshold.
    assert value.grad[1, 1].item() == pytest.approx(0.5 / (6 * 1e-4) ** 0.5)
    assert query.grad[1].tolist() == [0.0, 0.0]


def test_penalties_of_a_model_and_where_they_come_from():
    model = encoder()
    pruning = NeuroPrune(model, mlp=0.5, attention=2.0)
    layer = model[0].layers[0]
    dense = [layer.linear1, layer.linear2, model[1]]
    mlp = sum(degree_penalty(each.weight) for each in dense)
    attention = attention_penalty(*layer.self_attn.in_proj_weight.chunk(3))
    torch.testing.assert_close(pruning.penalty(), 0.5 * mlp + 2 * attention)
    inner = NeuroPrune(model, mlp=0.5, attention=0, exclude="1")
    mlp = sum(degree_penalty(each.weight) for each in dense[:2])
    torch.testing.assert_close(inner.penalty(), 0.5 * mlp)
    assert NeuroPrune(model, mlp=0, attention=0).penalty().item() == 0
    assert "ACL Findings 2024" in pruning.cite()
    for wrong in ({"mlp": -1}, {"attention": float("nan")}):
        with pytest.raises(ValueError, match="0 or more"):
            NeuroPrune(model, **wrong)
    with pytest.raises(ValueError, match="neither"):
        NeuroPrune(nn.Sequential(nn.Conv2d(3, 3, 3)))


def test_the_table_counts_connections():
    model = encoder()
    with torch.no_grad():
        model[1].weight.zero_()
        model[1].weight[0, :4] = 1
        model[0].layers[0].self_attn.in_proj_weight.view(3, 16, 16)[:, 5] = 0
    frame = NeuroPrune(model).table().set_index("layer")
    row = frame.loc["1.weight"]
    assert (row["rows"], row["degree"], row["zero_rows"]) == (3, pytest.approx(4 / 3), 2)
    assert row["density"] == pytest.approx(4 / 48)
    assert row["spread"] == pytest.approx((32 / 9) ** 0.5)
    assert frame.loc["0.layers.0.self_attn.query, key, value", "zero_rows"] == 1


def test_training_makes_degrees_uneven_and_goes_on_with_fewer_heads():
    torch.manual_seed(0)
    inputs = torch.randn(64, 5, 16)
    labels = (inputs[:, :, 0].mean(1) > 0).long()
    found = []
    for strength in (0.0, 1e-3):
        model = encoder()
        attention = model[0].layers[0].self_attn
        with torch.no_grad():
            slices = attention.in_proj_weight.view(3, 4, 4, 16)
            slices[:, 1] = slices[:, 3] + 0.01
        pruning = NeuroPrune(model, mlp=strength, attention=3 * strength, theta=0.1, threshold=5e-3)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.05, 70)
        for step in range(80):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs).mean(1), labels)
            (loss + pruning.penalty()).backward()
            optimizer.step()
            schedule.step()
            if step == 2:
                folded = pruning.fold_heads(optimizer, inputs)
                assert folded.targets["0.layers.0.self_attn"] == (0, 3, 2, 3)
        assert loss.item() < 0.05
        assert attention.num_heads == 3
        found.append(pruning.table()[["spread", "density", "zero_rows"]].mean())
    plain, pruned = found
    assert pruned["spread"] > 4 * plain["spread"]
    assert pruned["density"] < 0.8 * plain["density"]
    assert pruned["zero_rows"] > plain["zero_rows"]
