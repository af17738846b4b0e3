"""What health checks print is not a failure: a clean one never, and no prose is proof that hardware is broken."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.judge import judge
from perdure.triage.verdict import Label, Verdict

KEY_ERROR = """Traceback (most recent call last):
  File "train.py", line 5, in <module>
    x = cfg["lr"]
KeyError: 'lr'
"""
NO_MODULE = """Traceback (most recent call last):
  File "train.py", line 1, in <module>
    import einops
ModuleNotFoundError: No module named 'einops'
"""
STEPS = "".join(f"step {n} loss {3 - n / 100:.2f}\n" for n in range(1, 40))


def judged(log: str, exit_code: int = 1) -> Verdict:
    return judge(log.encode(), Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n5",), 0.0, 60.0, exit_code))


CLEAN = [
    "[taskprolog] GPU health on node5: checking dmesg for Xid 79 (GPU has fallen off the bus) ... none",
    "[taskprolog] volatile uncorrectable ECC error count: 0 ... ok",
    "[prolog] checking ECC: volatile uncorrectable ECC error count 0 ... ok",
    "health check: no Xid errors found, uncorrectable ECC errors: 0",
    "nhc[211]: Checking for Xid 79, Xid 48 and Xid 95: passed",
    "check_nvidia_xid: OK",
    "GPU 0 (UUID: GPU-1): uncorrectable ECC errors: 0, Xid: none",
    "GPU 3: 0 uncorrectable ECC errors, 0 Xid events",
    "No GPU has fallen off the bus; no uncorrectable ECC errors detected",
    "Looking for uncorrectable ECC errors on all GPUs",
    "Checking dmesg for GPU has fallen off the bus:",
    "| GPU Memory: uncorrectable ECC error, row remap failure | Pass - All                    |",
    "|   0  NVIDIA A100-SXM4...  On | 00000000:07:00.0 Off |                    0 | Volatile Uncorr. ECC |",
    "        Uncorrectable Error               : 0",
    "        Row Remapping Failure             : No",
    "            SRAM Uncorrectable            : 0",
    "            Double Bit ECC                : 0",
    "        Pending Page Blacklist            : No",
    "nvidia-smi: GPU requires reset: No",
    "EDAC MC0: 0 CE, 0 UE since boot",
    "EDAC mc0: Uncorrected errors: 0",
    "mc0: csrow0: 0 Uncorrected Errors with no DIMM info",
    "Machine check events logged: 0",
    "NVLink errors: 0",
    "NVLink error counters on GPU 2 Link 4: 0",
    "fabric manager: checking for errors ... ok",
    "nvidia-fabricmanager errors: none",
    "No BUG: soft lockup, Kernel panic - not syncing or Xid 79 was seen ... clean",
    "checking /tmp for Read-only file system on /tmp/ ... ok",
    "+ dmesg | grep -q 'NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU has fallen off the bus.'",
    "# NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU has fallen off the bus. -> call the operators",
    "# RuntimeError: CUDA error: uncorrectable ECC error encountered  means a broken card",
    "echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered'",
    "    if 'CUDA error: uncorrectable ECC error encountered' in str(err):",
    "    \"CUDA error: uncorrectable ECC error encountered\",",
    "If you see NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus, write to the help desk",
    "   cudaErrorECCUncorrectable = 214",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: errors=remount-ro",
    "[Hardware Error]: Corrected error, no action required.",
]  # fmt: skip


@pytest.mark.parametrize("line", CLEAN)
def test_a_clean_check_is_no_failure(line: str) -> None:
    alone = judged(f"{line}\n{STEPS}")
    assert not alone.hardware
    assert alone.category not in ("gpu_hw", "node_loss", "fs")
    for own in (KEY_ERROR, NO_MODULE):
        verdict = judged(f"{line}\n{own}")
        assert verdict.label is Label.DETERMINISTIC
        assert not verdict.hardware
        assert not verdict.infrastructure


SUBJECTS = ("Xid", "Xid 79", "uncorrectable ECC", "volatile double-bit ECC", "NVLink", "SXid", "uncorrected memory",
            "machine check", "UE", "GPU has fallen off the bus")  # fmt: skip
PREFIXES = ("", "[taskprolog] ", "nhc: ", "2025-01-02T03:04:05 INFO ", "node5: ", "GPU 3: ", "[ OK ] ", "check: ")
RESULTS = ("none", "ok", "OK", "0", "passed", "PASS", "clean", "[ OK ]", "None", "no", "healthy")


@given(
    st.sampled_from(PREFIXES),
    st.sampled_from(SUBJECTS),
    st.sampled_from(RESULTS),
    st.sampled_from(("{p}{s} errors: 0", "{p}no {s} errors", "{p}no new {s} errors found", "{p}0 {s} errors",
                     "{p}{s} error count = 0", "{p}found 0 {s} errors, all good", "{p}checking {s} errors ... {r}",
                     "{p}check for {s} error: {r}", "{p}{s} errors .... {r}", "{p}checking dmesg for {s}",
                     "{p}{s} errors (volatile): 0", "{p}{s} errors on GPU 3: 0")),
)  # fmt: skip
def test_a_clean_check_in_any_words_never_shows_broken_hardware(
    prefix: str, subject: str, result: str, form: str
) -> None:
    line = form.format(p=prefix, s=subject, r=result)
    verdict = judged(f"{line}\n{KEY_ERROR}")
    assert (verdict.hardware, verdict.category, verdict.label) == ("", "config", Label.DETERMINISTIC), line
    alone = judged(f"{line}\n", exit_code=3)
    assert not alone.hardware, line
    assert alone.category not in ("gpu_hw", "node_loss"), line


@given(st.sampled_from(PREFIXES), st.sampled_from(SUBJECTS[:-1]), st.integers(1, 99))
def test_prose_about_hardware_is_no_proof(prefix: str, subject: str, count: int) -> None:
    verdict = judged(f"{prefix}{count} {subject} errors\n{prefix}{subject} errors: {count}\nfound Xid 79\n")
    assert not verdict.hardware
    assert judged(f"{prefix}found Xid 79 on GPU 3\n{KEY_ERROR}").category == "config"


REAL = [
    "NVRM: Xid (PCI:0000:65:00): 79, pid=4711, name=python, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:65:00): 94, pid=7, Contained: CE User Channel (0x9). RST: No, D-RST: No",
    "NVRM: Xid (0000:65:00): 48, Double Bit ECC Error",
    "NVRM: GPU 0000:65:00.0: RmInitAdapter failed! (0x26:0x56:1463)",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 4: be00000000800400",
]
BEFORE = [
    "", "[Thu Jan  2 03:04:05 2025] ", "kernel: ", "Jan  2 03:04:05 n5 kernel: ", "n5: ",
    "[taskepilog] ", "2025-01-02T03:04:05.123456+01:00 n5 kernel: [ 812.11] ", "[rank3]: ",
]  # fmt: skip
OF_RUNTIMES = [
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
    "[rank3]: RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
    "n1:7:9 [3] misc/x.cc:9 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'",
    "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
    "GPUassert: uncorrectable ECC error encountered main.cu 10",
    'CUDA error at x.cu:12 code=214(cudaErrorECCUncorrectable) "cudaMemcpy"',
    "pynvml.NVMLError_GpuIsLost: GPU is lost",
]


@pytest.mark.parametrize("line", [*map("".join, itertools.product(BEFORE, REAL)), *OF_RUNTIMES])
@pytest.mark.parametrize("check", CLEAN[:2])
def test_the_own_words_of_kernel_driver_and_runtimes_still_are_proof(line: str, check: str) -> None:
    verdict = judged(f"{check}\n{STEPS}{line}\n")
    assert verdict.hardware
    assert verdict.label is Label.TRANSIENT


@pytest.mark.parametrize("line", REAL)
def test_a_line_of_the_kernel_that_the_program_outlived_is_no_proof(line: str) -> None:
    assert not judged(f"[  81.2] {line}\n{KEY_ERROR}").hardware
    assert judged(f"[  81.2] {line}\n{NO_MODULE}").label is Label.DETERMINISTIC
    assert judged(f"[  81.2] {line}\nRuntimeError: CUDA error: unspecified launch failure\n").hardware


def test_a_failure_of_hardware_that_was_survived_is_no_proof() -> None:
    assert not judged("CUDA error: uncorrectable ECC error encountered, retrying on another GPU\n").hardware
