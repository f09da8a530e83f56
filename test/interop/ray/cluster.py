"""A cluster of Ray with two nodes on this machine, until the standard input ends. Prints its address."""

import sys

from ray.cluster_utils import Cluster

cluster = Cluster(
    initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
)
cluster.add_node(num_cpus=1)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
