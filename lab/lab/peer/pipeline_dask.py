"""The pipeline of the experiment `flow-peers` over Dask, as lab/lab/src/pipeline has it in Rust.

A block is two tasks, one of which waits for the other; the scheduler gives each to one of the workers, which are
processes. Dask has no streams and no bound: what is under way is bounded here, by the source.

Usage: pipeline_dask.py WORKERS. It prints "ready" and then, for each line of eight numbers (an order), a report.
"""

import json
import sys
import time
from array import array

from distributed import Client, LocalCluster, as_completed

MASK = (1 << 64) - 1
# The scheduler is slowed down by more than this.
MOST_UNDER_WAY = 256
# It takes milliseconds for a block, so that a source cannot be faster.
LEAST_INTERVAL_NS = 5_000_000


def made(words, number, moment):
    block = array("Q", range(number, number + words))
    block[1] = moment
    return block.tobytes()


def total(block):
    words = memoryview(block).cast("Q")
    return (sum(words) - words[1]) & MASK


def first(block):
    return block, total(block)


def second(passed):
    block, sum_of_first = passed
    return block, sum_of_first, total(block)


class Pipeline:
    def __init__(self, client, numbers):
        self.client = client
        size, milliseconds, self.interval_ns, limit = numbers[:4]
        self.words = size // 8
        self.time_ns = milliseconds * 1_000_000
        self.most = min(3 * max(limit // size, 1), MOST_UNDER_WAY)
        self.blocks = 0
        self.sums = [0, 0, 0]
        self.latencies = []
        self.begun = time.monotonic_ns()

    def send(self, number):
        # Only moments that are evaluated are recorded, as in the other pipelines.
        now = time.monotonic_ns()
        moment = now if self.interval_ns or number == 0 else 0
        block = made(self.words, number, moment)
        passed = self.client.submit(first, block, pure=False)
        return self.client.submit(second, passed, pure=False)

    def take(self, result):
        block, sum_of_first, sum_of_second = result
        moment = memoryview(block).cast("Q")[1]
        sums = (sum_of_first, sum_of_second, total(block))
        self.sums = [(old + more) & MASK for old, more in zip(self.sums, sums)]
        self.blocks += 1
        if self.interval_ns:
            self.latencies.append(time.monotonic_ns() - moment)

    def goes_on(self):
        return time.monotonic_ns() - self.begun < self.time_ns

    def one_by_one(self):
        interval = max(self.interval_ns, LEAST_INTERVAL_NS)
        number = 0
        while self.goes_on():
            time.sleep(max(self.begun + number * interval - time.monotonic_ns(), 0) / 1e9)
            self.take(self.send(number).result())
            number += 1

    def at_full_speed(self):
        number = 1
        results = as_completed([self.send(0)], with_results=True)
        for _, result in results:
            self.take(result)
            while self.goes_on() and number - self.blocks < self.most:
                results.add(self.send(number))
                number += 1

    def run(self):
        if self.interval_ns:
            self.one_by_one()
        else:
            self.at_full_speed()
        report = {"blocks": self.blocks, "sums": self.sums, "seconds": (time.monotonic_ns() - self.begun) / 1e9}
        if self.latencies:
            self.latencies.sort()
            last = len(self.latencies) - 1
            report["p50_ns"] = self.latencies[int(0.5 * last)]
            report["p99_ns"] = self.latencies[int(0.99 * last)]
        return report


def main():
    workers = int(sys.argv[1])
    with LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster, Client(cluster) as client:
        print("ready", flush=True)
        for turn, line in enumerate(sys.stdin, start=1):
            report = Pipeline(client, [int(number) for number in line.split()]).run()
            print("report", turn, json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
