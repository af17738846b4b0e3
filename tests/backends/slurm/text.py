"""Text as Slurm prints it, for tests that need other stories than the recorded one."""

MARK = "0123456789abcdefz"


def job(
    number,
    *,
    name="job",
    user="ada",
    uid=1000,
    state="RUNNING",
    reason="None",
    start="100",
    end="Unknown",
    submit=90,
    nodes="n1",
    required="(null)",
    excluded="(null)",
    comment="",
    work_dir="/home",
    stdout="/home/out",
    network="(null)",
    priority=1,
    restarts=0,
    requeue=1,
    batch=1,
    preempt="None",
    cron="",
    exit_code="0:0",
    tres="cpu=1",
    tasks=1,
    tasks_per_node=0,
    before_name="",
    tail="",
    limit="01:00:00",
    mark=MARK,
):
    """One record of ``scontrol -o show job``."""

    def instant(value):
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


def node(name, state="IDLE", reason="", since=50, boot=10, daemon=20, mark=MARK):
    """One record of ``scontrol -o show node``."""
    why = f" Reason={reason} [root@{since}~{mark}]" if reason else ""
    return (
        f"NodeName={name} Arch=x86_64 CPUTot=8 Gres=gpu:h100:4 State={state} Partitions=main "
        f"BootTime={boot}~{mark} SlurmdStartTime={daemon}~{mark} CfgTRES=cpu=8,gres/gpu=4 AllocTRES=gres/gpu=2{why}\n"
    )
