"""Commands that deal with a cause, for a person to paste: where the rule that named it knows one.

They are written here and hold nothing that a log says: what is in capitals is for the reader to fill in, or for a
caller that has found and checked it.
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.triage.text.patterns import compiled


@dataclass(frozen=True, slots=True)
class Remedy:
    """A command for what a rule matched, where the line holds `where` (re2)."""

    rule: str
    command: str
    where: str = ""


OUTPUT_DIR = "OUTPUT_DIR"
JOB_ID = "JOBID"
REMEDIES = (
    Remedy("hf-missing", "export HF_TOKEN=YOUR_TOKEN", r"(?i)hugging ?face|Gated|Repository|Entry|Revision|Dataset"),
    Remedy("hf-missing", "aws sts get-caller-identity", r"(?i)botocore|boto|S3|NoSuchBucket"),
    Remedy("credentials-refused", "export HF_TOKEN=YOUR_TOKEN", r"(?i)hugging ?face|Gated"),
    Remedy("credentials-refused", "export WANDB_API_KEY=YOUR_KEY", r"(?i)wandb|api_key"),
    Remedy("credentials-refused", "aws sts get-caller-identity", r"(?i)botocore|boto|S3|NoCredentials|AccessKey"),
    Remedy("slurm-time-limit", "sbatch --time=D-HH:MM:SS SCRIPT"),
    Remedy("slurm-step-time-limit", "sbatch --time=D-HH:MM:SS SCRIPT"),
    Remedy("slurm-node-failure", f"sacct --duplicates --jobs={JOB_ID} --format=JobID,State,FailedNode", "CANCELLED AT"),
    Remedy("slurm-oom-kill", "sbatch --mem=SIZE SCRIPT"),
    Remedy("slurm-dos-breaks", "sed -i 's/\\r$//' SCRIPT"),
    Remedy(
        "cuda-oom", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", r"CUDA out of memory|OutOfMemoryError"
    ),
    Remedy("cuda-oom-busy-card", "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv"),
    Remedy("shm-too-small", "docker run --shm-size=8g IMAGE", r"(?i)shm|shared memory|torch_"),
    Remedy("disk-full", f"df -h {OUTPUT_DIR}"),
    Remedy("torch-save-failed", f"df -h {OUTPUT_DIR}"),
    Remedy("own-disk-full", f"srun --nodelist=NODE df -h {OUTPUT_DIR}"),
    Remedy("disk-quota", "quota -s"),
    Remedy(
        "port-busy", "torchrun --master-port=$((20000 + SLURM_JOB_ID % 20000)) SCRIPT", r"(?i)torch|rdzv|c10d|socket"
    ),
)


def remedy(rule: str, line: str) -> str:
    """The command for a line that a rule matched; "" where none is known."""
    text = line.encode("utf-8", "replace")
    fitting = (each for each in REMEDIES if each.rule == rule and compiled(each.where).search(text) is not None)
    return next((each.command for each in fitting), "")
