"""What the doctor says of the network between hosts."""

from dataclasses import replace

import pytest
from harness.jobs import MPICH, OPEN_MPI, change, job
from harness.threads import run_ranks

from collectives.doctor import examine, network
from collectives.doctor.facts import NetFacts, net_facts
from collectives.doctor.findings import Job, Link
from collectives.doctor.report import render


def hosts(count: int, links: tuple[Link, ...] = (), mpi=MPICH, **changes) -> Job:
    found = job(count, mpi, **changes)
    for rank in range(count):
        found = change(found, rank, host=f"node{rank}", host_index=rank)
    return replace(found, links=links)


def test_one_host_has_no_network() -> None:
    findings = examine(job(4))
    assert "network" not in {finding.check for finding in findings}
    assert "network" not in render(job(4), findings)


def test_links_that_are_alike_are_fine_and_stand_in_a_table() -> None:
    links = tuple(Link(*pair, 20.0, 1.1) for pair in network.pairs(3))
    of_three = hosts(3, links)
    (finding,) = network.links(of_three)
    assert (finding.level, finding.what) == ("ok", "20.0 us, 1.100 GB/s between hosts")
    lines = render(of_three, [finding]).splitlines()
    row = next(line for line in lines if line.split()[:1] == ["node1"])
    assert row.split() == ["node1", "20.0", "us", "1.100", "-", "20.0", "us", "1.100"]


@pytest.mark.parametrize("slow", [(21.0, 0.4), (300.0, 1.1)])
def test_a_slow_link_is_named(slow) -> None:
    links = Link(0, 1, 20, 1.1), Link(0, 2, 20, 1.1), Link(1, 2, *slow)
    (finding,) = network.links(hosts(3, links))
    assert finding.level == "warning"
    assert finding.what.startswith("node1 - node2: ")


def test_of_many_hosts_only_neighbours_are_measured_and_few_are_listed() -> None:
    pairs = network.pairs(40)
    assert len(pairs) == 40
    links = tuple(Link(*pair, 20, 1 + pair[0] / 100) for pair in pairs)
    lines = list(network.matrix(hosts(40, links)))
    assert len(lines) == 2 + network.MOST_HOSTS
    assert "node0 - node1" in lines[1]


@pytest.mark.parametrize(
    ("mpi", "fix"), [(MPICH, "FI_TCP_IFACE"), (OPEN_MPI, "btl_tcp_if_include")]
)
def test_several_interfaces_and_nothing_said_is_a_note(mpi, fix) -> None:
    two = NetFacts(("docker0", "eth0"), "10.0.0.1")
    noted = list(network.interfaces(hosts(2, mpi=mpi, net=two)))
    assert [finding.level for finding in noted] == ["note", "note"]
    assert "docker0 eth0 are up" in noted[0].what
    assert fix in noted[0].fix
    told = {"UCX_NET_DEVICES": "eth0"}
    assert not list(network.interfaces(hosts(2, mpi=mpi, net=two, environment=told)))
    assert not list(network.interfaces(job(2, mpi, net=two)))


def test_a_name_that_stands_for_the_loopback_is_a_warning() -> None:
    own = NetFacts(("eth0",), "127.0.1.1")
    finding = next(network.interfaces(hosts(2, net=own)))
    assert finding.level == "warning"
    assert "127.0.1.1" in finding.what


def test_this_host_says_something_of_its_network() -> None:
    facts = net_facts()
    assert "lo" not in facts.interfaces


def test_pairs_of_hosts_are_measured_and_all_ranks_know(monkeypatch) -> None:
    monkeypatch.setattr(network, "PAIR_S", 1e-4)
    monkeypatch.setattr(network, "MOST_BYTES", 1 << 17)
    everyones = run_ranks(4, network.measure, "two hosts")
    assert all(links == everyones[0] for links in everyones)
    (link,) = everyones[0]
    assert (link.one, link.other) == (0, 1)
    assert link.latency_us > 0
    assert link.gbs > 0
