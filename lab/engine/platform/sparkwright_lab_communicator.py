"""The communicator of the lab's platform."""

from __future__ import annotations

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


class NetworkCommunicator(CpuCommunicator):
    """Ranks are on different nodes, although vLLM's CPU takes them for processes of one machine with one /dev/shm."""

    def _all_group_ranks_share_shm_group_name(self) -> bool:
        return False
