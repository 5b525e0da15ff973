"""Who takes part: a cluster's tasks, and which of them this process is."""

from strategy.cluster_resolver.kubernetes import (
    KubernetesClusterResolver,
    KubernetesExecutableLocation,
)
from strategy.cluster_resolver.mpi import MPIClusterResolver
from strategy.cluster_resolver.resolver import ClusterResolver
from strategy.cluster_resolver.simple import SimpleClusterResolver, UnionResolver
from strategy.cluster_resolver.slurm import SlurmClusterResolver
from strategy.cluster_resolver.spec import ClusterSpec
from strategy.cluster_resolver.tf_config import TFConfigClusterResolver

__all__ = [
    "ClusterResolver",
    "ClusterSpec",
    "KubernetesClusterResolver",
    "KubernetesExecutableLocation",
    "MPIClusterResolver",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "UnionResolver",
]
