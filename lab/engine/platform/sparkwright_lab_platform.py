"""A platform for vLLM: its CPU, on which Ray may place ranks. Stock vLLM lets Ray place them on accelerators alone.

vLLM finds it by the entry point in build-env, and takes it unless VLLM_TARGET_DEVICE names the CPU outright.
"""

from __future__ import annotations

from vllm.platforms.cpu import CpuPlatform


class RayCpuPlatform(CpuPlatform):
    """The CPU, which Ray counts as a GPU: `ray start --num-gpus 1` says how many there are and asks no driver."""

    ray_device_key = "GPU"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        """The class by which ranks exchange tensors."""
        return "sparkwright_lab_communicator.NetworkCommunicator"
