"""Threads: one communicator is for one at a time, several are for several."""

import threading

import numpy as np
import pytest

from collectives import BrokenCommunicatorError

ROUNDS = 100
SIZES = (1, 1000, 200_000)


def in_threads(*bodies):
    """Run each body in a thread of its own; raise what the first failing one raised."""
    errors = []

    def run(body):
        try:
            body()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_each_thread_with_a_communicator_of_its_own(comm):
    if not comm._group.threads:
        return  # below MPI_THREAD_MULTIPLE the MPI forbids it
    with comm.split(0) as one, comm.split(0) as two:

        def work(own, first):
            for number in range(ROUNDS):
                x = np.full(SIZES[number % 3], float(first + own.rank))
                total = own.size * first + sum(range(own.size))
                assert (own.all_reduce(x) == total).all()
                assert own.all_gather_object(first) == [first] * own.size

        in_threads(lambda: work(one, 1000), lambda: work(two, 7))
    assert comm.all_reduce(1).item() == comm.size


@pytest.mark.ranks(2, 3)
def test_two_threads_on_one_communicator_are_an_error(comm):
    """Rank 0's second thread is refused while the first one waits for the others."""
    inside, told = threading.Event(), []

    def first():
        threading.Timer(0.2, inside.set).start()
        comm.barrier()

    def second():
        inside.wait(20)
        with pytest.raises(BrokenCommunicatorError) as caught:
            comm.all_reduce(np.ones(2))
        told.append(str(caught.value))
        comm_to_others.send(1.0, 1)

    with comm.split(0) as comm_to_others:
        if comm.rank == 0:
            in_threads(first, second)
            assert told == [
                "rank 0: another thread is inside barrier on this communicator; "
                "use one communicator a thread"
            ]
        else:
            if comm.rank == 1:  # the barrier ends only after the second thread
                comm_to_others.recv(np.zeros(()), 0)
            comm.barrier()
    assert comm.all_reduce(1).item() == comm.size
