"""Runs a job of tsrun on a cluster of Ray, with one tsrun for each node. See docs/deploy/ray.md.

    python deploy/on_ray.py --nodes 2 --nproc 4 train.ts --epochs 3
"""

import argparse
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote
class Node:
    """One node of the job: a task of Ray that runs tsrun."""

    def endpoint(self):
        """The address of this node, and a port that is free on it."""
        with socket.socket() as free:
            free.bind(("", 0))
            return ray.util.get_node_ip_address(), free.getsockname()[1]

    def run(self, command, folder, token):
        """Runs tsrun to its end, and returns its exit code. It gets SIGTERM when this process dies."""
        stop = lambda: ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        env = {**os.environ, "TSRUN_TOKEN": token}
        code = subprocess.run(command, cwd=folder, env=env, preexec_fn=stop).returncode
        return code if code >= 0 else 128 - code


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--nproc", type=int, default=4, help="ranks on each node")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of each node")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="the script and its arguments")
    options = parser.parse_args()

    ray.init()
    # All nodes or none, each on a host of its own; STRICT_SPREAD fails where there are too few hosts.
    bundle = {"CPU": options.nproc, **({"GPU": options.gpus} if options.gpus else {})}
    group = placement_group([bundle] * options.nodes, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    nodes = [
        Node.options(
            num_cpus=options.nproc,
            num_gpus=options.gpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank),
        ).remote()
        for rank in range(options.nodes)
    ]
    address, port = ray.get(nodes[0].endpoint.remote())
    token = secrets.token_hex(32)
    job = ["--nnodes", str(options.nodes), "--nproc", str(options.nproc)]
    job += ["--master-addr", address, "--master-port", str(port)]
    ends = [
        node.run.remote(
            ["npx", "tsrun", "--node-rank", str(rank), *job, *options.script], os.getcwd(), token
        )
        for rank, node in enumerate(nodes)
    ]
    sys.exit(max(ray.get(ends)))


if __name__ == "__main__":
    main()
