"""When faults strike, without processes: exactly at their point, once, on the rank of now."""

import pytest

from dtoolkit.comm.trace import Event, Trace
from dtoolkit.faults import CutLink, Injection, Kill, Raise, Slow, SlowLink, inject
from tests.faults.fakes import FakeCluster, Note


def run(*faults, ranks: int = 3) -> tuple[FakeCluster, list]:
    cluster = FakeCluster(Injection(faults))
    return cluster, cluster.launch(ranks)


@pytest.mark.parametrize(
    ("point", "struck"),
    [
        ({"at_step": 2}, ("step", 2)),
        ({"at_step": 2, "where": "backward"}, ("state", 2)),
        ({"at_step": 2, "where": "exchange"}, ("operation", 2)),
        ({"at_operation": "all_reduce"}, ("operation", 0)),
        ({"at_operation": ("all_reduce", 5)}, ("operation", 2)),
    ],
)
def test_a_fault_strikes_at_its_point_on_its_rank(point, struck):
    cluster, sites = run(Note(1, **point))
    for site in sites:
        site.steps(*range(5), operations=2)
    assert [site.done for site in sites] == [[], [("note", *struck)], []]
    (fired,) = cluster.injection.fired
    assert (fired.rank, fired.step, fired.launch, fired.number) == (1, struck[1], 1, 0)
    assert fired.operation == ("all_reduce" if struck[0] == "operation" else "")
    assert cluster.injection.left() == ()


def test_points_that_nobody_comes_to_are_left():
    faults = (Note(0, at_step=9), Note(1, at_operation="barrier"), Note(2, after=60.0))
    cluster, sites = run(*faults, Note(0, at_step=1))
    for site in sites:
        site.steps(*range(5))
    assert cluster.injection.left() == faults
    assert repr(cluster.injection) == "<Injection: 1 of 4 faults have fired>"


def test_the_first_exchange_of_a_step_counts_and_no_later_one():
    _, (site, *_) = run(Note(0, at_step=3, where="exchange"))
    site.steps(2, operations=2)
    site.steps(3, operations=0)
    site.operation("barrier")
    site.operation("all_reduce")
    assert site.done == [("note", "operation", 3)]


def test_time():
    cluster, (site, *others) = run(Note(0, after=2.0), Note(0, after=0.0))
    assert site.done == [("note", "time", None)]  # at the beginning, before the function
    site.wait(1.9)
    assert len(site.done) == 1
    site.wait(0.2)
    assert len(site.done) == 2
    assert all(not other.done for other in others)
    assert [round(one.after, 1) for one in cluster.injection.fired] == [0.0, 2.1]


def test_an_exception_waits_for_its_thread():
    cluster, (site, *_) = run(Raise(0, after=1.0, error=ValueError, message="now"))
    site.wait(1.5)
    assert not cluster.injection.fired
    with pytest.raises(ValueError, match="now"):
        site.operation("barrier")
    assert cluster.injection.fired[0].operation == "barrier"


def test_an_exception_says_by_default_what_it_is():
    _, (_, site, _) = run(Raise(1, at_step=0))
    with pytest.raises(RuntimeError, match="injected: raise RuntimeError on rank 1 at step 0"):
        site.steps(0)
    site.steps(0)


def test_once_over_launches_and_repeated_steps():
    cluster, (site, *_) = run(Note(0, at_step=1), Note(0, at_step=1, mark="second"))
    site.steps(0, 1, 1, 2)
    assert [one[0] for one in site.done] == ["note", "second"]
    for site in cluster.launch(3):
        site.steps(0, 1, 2)
        assert not site.done
    assert len(cluster.injection.fired) == 2


def test_another_injection_fires_anew():
    faults = (Note(0, at_step=1),)
    for _ in range(2):
        _, (site, *_) = run(*faults)
        site.steps(0, 1)
        assert len(site.done) == 1


def test_a_newcomer_does_not_fire_again_what_its_predecessor_has_fired():
    cluster, sites = run(Note(2, at_step=1), Note(2, at_step=2), Note(2, after=5.0))
    sites[2].steps(0, 1)
    newcomer = cluster.enter(2, 3, joined=True)
    newcomer.steps(1, 2, 3)
    assert newcomer.done == [("note", "step", 2)]
    cluster.now += 3.0
    late = cluster.enter(2, 3, joined=True)  # the launch began 3 s ago, as the client has heard
    late.wait(1.9)
    assert not late.done
    late.wait(0.2)
    assert late.done == [("note", "time", None)]


def test_a_newcomer_does_not_make_up_for_times_that_have_passed():
    cluster, sites = run(Note(1, at_step=0), Note(2, after=1.0), Note(2, after=0.0, mark="begin"))
    assert sites[2].done == [("begin", "time", None)]
    sites[1].steps(0)
    cluster.now += 2.0
    newcomer = cluster.enter(2, 3, joined=True)
    newcomer.wait(5.0)
    assert not newcomer.done
    assert cluster.injection.left() == (Note(2, after=1.0),)


def test_ranks_are_those_of_now():
    cluster, (_, one, two) = run(Note(1, at_step=2), Note(2, at_step=2))
    one.steps(0, 1, 2)
    two.steps(0, 1)
    two.rebuilt(1, 2)  # rank 1 was lost in step 2, which this rank had not begun
    two.steps(2, 3)
    assert two.done == []  # as rank 1 it does not repeat what rank 1 has fired
    assert cluster.injection.left() == (Note(2, at_step=2),)


def test_a_fault_of_a_rank_that_another_has_become():
    cluster, (_, _, two) = run(Note(1, at_step=4))
    two.steps(0, 1, 2)
    two.rebuilt(1, 2)
    two.steps(2, 3, 4)
    assert two.done == [("note", "step", 4)]
    assert cluster.injection.fired[0].rank == 1


def test_faults_of_one_moment_strike_in_their_order():
    cluster, (site, *_) = run(Note(0, at_step=1), Raise(0, at_step=1), Note(0, at_step=1, mark="b"))
    with pytest.raises(RuntimeError):
        site.steps(1)
    assert [one[0] for one in site.done] == ["note"]
    site.steps(1)  # the step is repeated
    assert [one[0] for one in site.done] == ["note", "b"]
    assert cluster.injection.left() == ()


# ------------------------------------------------------------------------------------- links


def test_a_link_is_cut_by_its_source():
    _, sites = run(CutLink(2, 0, at_step=1))
    for site in sites:
        site.steps(0, 1)
    assert [site.done for site in sites] == [[], [], [("cut", 0)]]


def test_a_target_that_is_not_there_any_more():
    cluster, (site, *_) = run(CutLink(0, 2, at_step=1), SlowLink(0, 2, latency=1, at_step=1))
    site.rebuilt(0, 2)
    site.steps(0, 1)
    assert site.done == []
    assert len(cluster.injection.fired) == 2


SLOW = ("delay", 1, 0.005, None)
OVER = ("delay", 1, None, None)


def test_a_slow_link_lasts_for_its_steps_in_every_launch():
    cluster, (site, *_) = run(SlowLink(0, 1, latency="5ms", at_step=2, until_step=4))
    site.steps(*range(6))
    assert site.done == [SLOW, OVER]
    (again, *_) = cluster.launch(3)
    again.steps(3)  # it goes on from a checkpoint
    assert again.done == [SLOW]
    again.steps(4, 5, 3, 4)  # and repeats a step
    assert again.done == [SLOW, OVER, SLOW, OVER]
    assert len(cluster.injection.fired) == 1


def test_a_slow_link_from_the_beginning_to_the_end():
    cluster, (site, *_) = run(SlowLink(0, 1, bandwidth="10MB/s"))
    assert site.done == [("delay", 1, None, 10e6)]
    site.steps(0, 1)
    assert len(site.done) == 1
    assert [one.done for one in cluster.launch(3)] == [[("delay", 1, None, 10e6)], [], []]
    assert cluster.enter(0, 3, joined=True).done == [("delay", 1, None, 10e6)]


def test_a_slow_link_for_some_seconds():
    _, (site, *_) = run(SlowLink(0, 1, latency="5ms", at_step=1, for_seconds=2.0))
    site.steps(0, 1, 2)
    site.wait(1.9)
    assert site.done == [SLOW]
    site.wait(0.2)
    site.steps(3)
    assert site.done == [SLOW, OVER]


def test_a_slow_link_is_laid_on_the_next_group_too():
    _, (site, other, _) = run(SlowLink(0, 1, latency="5ms", at_step=1))
    for one in (site, other):
        one.steps(0, 1)
        one.rebuilt(one.rank, 2)
    assert site.done == [SLOW, SLOW]
    other.rebuilt(0, 2)
    other.steps(2)
    site.rebuilt(1, 2)
    assert other.done == [SLOW]


# ------------------------------------------------------------------------------- the client


def test_what_is_no_fault_is_refused():
    with pytest.raises(TypeError, match=r"faults\[1\] is Slow.*dt.train"):
        Injection([Kill(0, at_step=1), Slow(1, factor=2.0)])
    with pytest.raises(TypeError, match=r"faults\[0\] must be a fault such as .* got 'kill'"):
        Injection(["kill"])
    with pytest.raises(ValueError, match="rank=4 is not one of the 4"):
        Injection([Kill(0, at_step=1), Kill(4, at_step=1)]).check(4)


def test_the_log_as_a_table():
    cluster, sites = run(Note(1, after=0.0), Note(2, at_step=3), Note(0, at_operation="barrier"))
    for site in sites:
        site.steps(3)
    table = cluster.injection.table()
    assert list(table["fault"]) == ["note on rank 1 at the beginning", "note on rank 2 at step 3"]
    assert table["step"].isna().tolist() == [True, False]
    assert str(cluster.injection.fired[1]) == "note on rank 2 at step 3"
    assert Injection([]).table().empty


def test_traces_say_which_launches_met_a_slow_link():
    trace = Trace()
    cluster = FakeCluster(Injection([SlowLink(0, 1, latency="5ms", at_step=1)], trace=trace))
    for steps in ((0, 1), (0,), (1,)):
        (site, *_) = cluster.launch(2)
        site.steps(*steps)
    trace.extend(
        Event(launch, 0, "barrier", "", 0.0, 1.0, (0, 0), 0, "", "", "") for launch in (1, 2, 3)
    )
    slow = "a slow link between ranks 0 and 1 (5ms more)"
    assert [trace.filter(launch=one).emulated for one in (1, 2, 3)] == [slow, "", slow]
    assert trace.emulated == slow
    trace.clear()
    assert trace.emulated == ""


def test_faults_are_injected_into_a_cluster():
    with pytest.raises(TypeError, match=r"cluster is NoneType: wanted a dtoolkit\.Cluster"):
        inject(None, Note(1, at_step=0)).__enter__()
