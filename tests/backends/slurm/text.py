"""Text as Slurm prints it, for tests that need other stories than the recorded one."""

MARK = "0123456789abcdefz"


def job(
    number: int,
    *,
    name: str = "job",
    user: str = "ada",
    uid: int = 1000,
    state: str = "RUNNING",
    reason: str = "None",
    start: str | int = "100",
    end: int | str = "Unknown",
    submit: int = 90,
    nodes: str = "n1",
    required: str = "(null)",
    excluded: str = "(null)",
    comment: str = "",
    work_dir: str = "/home",
    stdout: str = "/home/out",
    network: str = "(null)",
    priority: int = 1,
    restarts: int = 0,
    requeue: int = 1,
    batch: int = 1,
    preempt: int | str = "None",
    cron: str = "",
    exit_code: str = "0:0",
    tres: str = "cpu=1",
    tasks: int = 1,
    tasks_per_node: int = 0,
    before_name: str = "",
    tail: str = "",
    limit: str = "01:00:00",
    mark: str = MARK,
) -> str:
    """One record of ``scontrol -o show job``."""

    def instant(value: int | str) -> str | int:
        return f"{value}~{mark}" if str(value).isdecimal() else value

    said = f" Comment={comment} " if comment else ""
    return (
        f"JobId={number} {before_name}JobName={name} UserId={user}({uid}) GroupId=g({uid}) MCS_label=N/A "
        f"Priority={priority} Nice=0 Account=a QOS=normal JobState={state} Reason={reason} Dependency=(null) "
        f"Requeue={requeue} Restarts={restarts} BatchFlag={batch} Reboot=0 ExitCode={exit_code} RunTime=00:00:01 "
        f"TimeLimit={limit} TimeMin=N/A SubmitTime={instant(submit)} EligibleTime={instant(submit)} "
        f"AccrueTime={instant(submit)} StartTime={instant(start)} EndTime={instant(end)} Deadline=N/A "
        f"PreemptTime={instant(preempt)} {cron}"
        f"SuspendTime=None SecsPreSuspend=0 LastSchedEval={instant(submit)} Scheduler=Main Partition=main "
        f"AllocNode:Sid=h:1 ReqNodeList={required} ExcNodeList={excluded} NodeList={nodes} BatchHost=n1 NumNodes=1 "
        f"NumCPUs=1 NumTasks={tasks} CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES={tres} Socks/Node=* "
        f"NtasksPerN:B:S:C={tasks_per_node}:0:*:* CoreSpec=* Features=(null) "
        f"DelayBoot=00:00:00 Licenses=(null) Network={network} Command=/run.sh WorkDir={work_dir}{said} "
        f"StdErr={stdout} StdIn=/dev/null StdOut={stdout} Power= {tail}\n"
    )


def node(
    name: str,
    state: str = "IDLE",
    reason: str = "",
    since: int = 50,
    boot: int = 10,
    daemon: int = 20,
    mark: str = MARK,
) -> str:
    """One record of ``scontrol -o show node``."""
    why = f" Reason={reason} [root@{since}~{mark}]" if reason else ""
    return (
        f"NodeName={name} Arch=x86_64 CPUTot=8 Gres=gpu:h100:4 State={state} Partitions=main "
        f"BootTime={boot}~{mark} SlurmdStartTime={daemon}~{mark} CfgTRES=cpu=8,gres/gpu=4 AllocTRES=gres/gpu=2{why}\n"
    )
