# Perdure's doors. `make up` needs only Python >= 3.11 (with venv), make and git.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Numeric threads on a shared machine slow each other down.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1

.PHONY: up help setup test test-tools lock attacks crash dst reference laws mutants mutants-generated mutants-swept fuzz slurm-table slurm-checks condor slurm-agreement slurm-keep slurm-policy programs foundry thresholds bench-triage bench-site-learning bench-learning-cost bench-waits docs clean

up: setup ## install into .venv, start the embedded cluster and a demonstration; ARGS="--no-demo --port 8080"
	@exec $(BIN)/perdure up $(ARGS)

# What stands behind the two number signs of each target.
help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

setup: $(VENV)/.sim ## install into .venv, and start nothing

# Most tests wait for processes more than they compute: files run beside each other.
WORKERS ?= 3
test: test-tools ## run every test that can run on this machine; ARGS="tests/cli -k why"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-tools: $(VENV)/.test ## install what the tests need

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON): older than Python 3.11. Name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "$(PYTHON): cannot make a virtual environment. On Debian and Ubuntu install python3-venv." >&2; exit 2; }

$(VENV)/.base: requirements/base.txt pyproject.toml | $(BIN)/python
	@echo "Installing Perdure into $(VENV) ..."
	@$(PIP) install --require-hashes -r requirements/base.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# What-if replays and traces from files. Their machine code is made once, in the background: a long replay waits for nothing.
$(VENV)/.sim: requirements/sim.txt $(VENV)/.base
	@$(PIP) install --require-hashes -r requirements/sim.txt
	@touch $@
	@echo "Compiling the simulator in the background, once (half a minute or more of one core)."
	@nohup nice -n 19 $(BIN)/python -m perdure.simulation.warm </dev/null >/dev/null 2>&1 &

$(VENV)/.test: requirements/test.txt $(VENV)/.sim
	@echo "Installing the test tools into $(VENV) ..."
	@$(PIP) install --require-hashes -r requirements/test.txt
	@touch $@

# Maintainers: resolve the locks anew (needs uv). Hashes, no index addresses.
UV_COMPILE = uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet
lock: ## resolve the locks again (needs uv)
	$(UV_COMPILE) pyproject.toml requirements/build.in -o requirements/base.txt
	$(UV_COMPILE) pyproject.toml requirements/build.in --extra k8s --extra postgres -o requirements/cluster.txt
	$(UV_COMPILE) pyproject.toml requirements/build.in --extra sim -o requirements/sim.txt
	$(UV_COMPILE) pyproject.toml requirements/build.in --extra test -o requirements/test.txt

# Deterministic simulation of the whole service: N seeds from FIRST on; one with its trace: `make dst SEED=17`.
dst: N = 2000
FIRST ?= 0
dst: test-tools ## deterministic simulation of the whole service; N=2000, or SEED=17
	@$(BIN)/python -m tests.dst $(if $(SEED),--seed $(SEED),--seeds $(N) --first $(FIRST))

# Random small instances a policy, in both engines, against a plain simulator written from the textbooks.
reference: N = 3000
reference: test-tools ## schedules against a simulator written from the textbooks; N=3000
	@REFERENCE_INSTANCES=$(N) $(BIN)/python -m pytest -q -n $(WORKERS) --timeout 0 tests/simulation/test_reference.py

# What the controller decides does not change with names, times, and what it has no business with: N seeds a law.
laws: N = 300
laws: test-tools ## laws of renaming, shifting, telling twice and of others beside; N=300 seeds each
	@LAWS_SEEDS=$(N) $(BIN)/python -m pytest -q -n $(WORKERS) --timeout 0 tests/laws

# Deliberate bugs (tests/mutants): does a test notice each? Some of them: make mutants ONLY=retry,fence.
mutants: test-tools ## does a test notice each deliberate bug? ONLY=retry,fence
	@$(BIN)/python -m tests.mutants --workers $(WORKERS) --only "$(ONLY)"

# Mutants that mutmut makes of a part, N of them drawn at random: make mutants-generated PART=retry N=100 SEED=0.
mutants-generated: N = 100
mutants-generated: $(VENV)/.mutmut ## does a test notice random changes of a part? PART=retry N=100
	@$(BIN)/python -m tests.mutants.generated $(PART) --n $(N) --seed $(or $(SEED),0)

# All mutants of one kind in some files, or N drawn at random, against the tests nearest to each: make mutants-swept KIND=ends ONLY=retry,coordination.
mutants-swept: test-tools ## does a test notice each swapped end, or whose? KIND=ends ONLY=retry
	@$(BIN)/python -m tests.mutants.swept --kind $(or $(KIND),ends) --only "$(ONLY)" $(if $(filter command line,$(origin N)),--n $(N) --seed $(or $(SEED),0))

$(VENV)/.mutmut: tests/mutants/requirements.txt $(VENV)/.test
	@echo "Installing mutmut into $(VENV) ..."
	@$(PIP) install -r tests/mutants/requirements.txt
	@touch $@

# Power cuts under the journal, then kill -9 of the service at N random points.
N ?= 10000
CUTS ?= 1000
crash: test-tools ## power cuts, and kill -9 of the service; CUTS=1000 N=10000
	@$(BIN)/python -m tests.crash --cuts $(CUTS) --kills $(N)

# What users and strangers tried, as attacks on a running service; with those that take longer.
attacks: test-tools ## attacks on a running service
	@$(BIN)/python -m pytest -m "slow or not slow" tests/attacks $(ARGS)

# The failure table with real faults on a real Slurm, all rows one after the other, and its page of docs (about 30 minutes);
# then the other slow tests there. ROOT=DIR: in another Debian root, whose Slurm is newer.
slurm-table: test-tools ## the failure table on a real Slurm, about 30 minutes
	@$(IN_ROOT) env PERDURE_REQUIRE=slurm PERDURE_TABLE=$(CURDIR)/docs/failure-table.json \
	  $(BIN)/python -m pytest -m slurm tests/slurm/test_failure_table.py $(ARGS); \
	  $(BIN)/python -m tests.slurm.table.page
	@$(IN_ROOT) $(BIN)/python -m pytest -m "slurm and slow" tests/slurm --deselect tests/slurm/test_failure_table.py $(ARGS)

# The common checks of backends on a real Slurm. ROOT=DIR: in another Debian root, whose Slurm is newer.
slurm-checks: test-tools ## the common checks of backends on a real Slurm, about 3 minutes; ROOT=DIR
	@$(IN_ROOT) env PERDURE_REQUIRE=slurm $(BIN)/python -m pytest -n 0 tests/backends/test_conformance.py -k slurm $(ARGS)

# The common checks of backends and those of HTCondor alone on a real pool. ROOT=DIR: in a Debian root that has the package condor.
condor: test-tools ## the backend of HTCondor on a real pool, about 8 minutes; ROOT=DIR
	@$(IN_ROOT) env PERDURE_REQUIRE=condor $(BIN)/python -m pytest -n 0 tests/backends/condor tests/backends/test_conformance.py -k condor $(ARGS)

# Random jobs on a real Slurm and in the simulation, decision by decision: N of them on each site.
slurm-agreement: N = 30
slurm-agreement: test-tools ## decisions of a real Slurm against the simulation's; N=30, about 5 minutes
	@$(IN_ROOT) env PERDURE_REQUIRE=slurm AGREEMENT_JOBS=$(N) \
	  $(BIN)/python -m pytest -n 0 -m slurm tests/slurm/test_agreement.py $(ARGS)

# A chain of ten links of two minutes under load, its keeper killed five times, slurmctld and a node once; beside it
# --dependency=afterany on the same load (about 35 minutes). What was measured goes to build/keep.json.
slurm-keep: test-tools ## a chain of ten links on a real Slurm under load, about 35 minutes
	@mkdir -p build
	@$(IN_ROOT) env PERDURE_REQUIRE=slurm PERDURE_KEEP_FIGURES=$(CURDIR)/build/keep.json \
	  $(BIN)/python -m pytest -n 0 -m "slurm and slow" tests/slurm/test_keep.py $(ARGS)

# A load on a real Slurm under its own backfill, then under a policy with kills of Perdure and slurmctld: 10 minutes each.
slurm-policy: N = 120
slurm-policy: test-tools ## a load on a real Slurm under its own backfill and under a policy; N=120 SEED=1
	@mkdir -p build
	@$(IN_ROOT) $(BIN)/python -m benchmarks.live_policy --jobs $(N) --seed $(or $(SEED),1) $(ARGS)

# Real PyTorch programs that fail for real (tests/programs): by themselves, on the embedded cluster, on a real Slurm.
# Needs PyTorch in the environment. All of them make docs/failing-programs.md anew. Some of them: make programs ONLY="killed shape".
programs: test-tools ## PyTorch programs that fail for real; ONLY="killed shape"
	@mkdir -p build; rm -f $(PROGRAMS_TABLE)
	@PERDURE_REQUIRE=torch PERDURE_PROGRAMS="$(ONLY)" PERDURE_TABLE=$(CURDIR)/$(PROGRAMS_TABLE) \
	  $(BIN)/python -m pytest -m "slow or not slow" tests/programs $(ARGS); \
	  ended=$$?; $(if $(ONLY),,$(BIN)/python -m tests.programs.page $(PROGRAMS_TABLE);) exit $$ended

PROGRAMS_TABLE := build/programs.jsonl

IN_ROOT = $(if $(ROOT),tests/slurm/in-root $(ROOT))

# The fault foundry: every program of it fails again, its truth is proven, the records are written anew (docs/foundry.md).
FOUNDRY_VENV ?= build/foundry
FOUNDRY_DATA := src/perdure/triage/data/foundry.jsonl.gz
SLURM_SANDBOX ?= $(wildcard ../shared/tools/slurm-sandbox)
foundry: test-tools $(FOUNDRY_VENV)/bin/python ## make the labelled logs again
	@$(BIN)/python -m foundry.cast --python $(FOUNDRY_VENV)/bin/python --keep $(FOUNDRY_DATA) \
	  --out $(FOUNDRY_DATA) $(if $(SLURM_SANDBOX),--slurm-sandbox $(SLURM_SANDBOX)) $(ARGS)
	@$(BIN)/python -m foundry.replayed

$(FOUNDRY_VENV)/bin/python:
	@$(PYTHON) -m venv $(FOUNDRY_VENV)
	@echo "Installing frameworks into $(FOUNDRY_VENV) ..."
	@$@ -m pip --disable-pip-version-check --quiet install -r foundry/frameworks.txt || \
	  echo "Not all of them could be installed: programs that need one are skipped." >&2

# The model and the thresholds of the verdict, made anew from the real logs and the foundry's. About two minutes.
REAL_LOGS ?= ../shared/data/failure-logs/train.jsonl
thresholds: test-tools ## make triage's model and thresholds again
	@$(BIN)/python -m foundry.train --data $(REAL_LOGS) $(FOUNDRY_DATA) \
	  --out src/perdure/triage/data/linear.npz --thresholds src/perdure/triage/data/thresholds.json $(ARGS)

# How right triage is, and how much it learns. Rows of GRU and LSTM need PyTorch in the environment (extra rnn).
bench-triage: test-tools ## measure how right triage is
	@$(BIN)/python -m benchmarks.triage_quality --out benchmarks/triage_quality.md $(ARGS)

# How soon a site's own kinds of failure are decided rightly; N kinds. About a minute of one core.
bench-site-learning: N ?= 60
bench-site-learning: test-tools ## measure how soon new kinds of failure are learnt; N=60
	@$(BIN)/python -m benchmarks.site_learning --kinds $(N) --out benchmarks/site_learning.md $(ARGS)

bench-learning-cost: N ?= 2000
bench-learning-cost: test-tools ## measure what learning costs, and what hostile viewers get; N=2000 jobs, ARGS="--words 500"
	@$(BIN)/python -m benchmarks.learning_cost --jobs $(N) $(ARGS)

# How right the predictors of waits are. About half an hour of one core.
WAITS_DATA ?= ../shared/data/queues/drac_graham_2021_submitday_snapshots.parquet
bench-waits: test-tools ## measure how right the predictors of waits are
	@$(BIN)/python -m benchmarks.waits $(WAITS_DATA) --out benchmarks/waits.md $(ARGS)

# The generated pages of the reference.
docs: test-tools ## generate the pages of the reference
	@$(BIN)/python docs/generate.py

clean: ## remove .venv and what tools left
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Requests by the rules of the API's own description, whatever they hold: `make fuzz N=100000`. None may end in a 5xx.
fuzz: test-tools ## requests by the rules of the API's own description; N=100000
	@PERDURE_FUZZ=$(N) $(BIN)/python -m pytest -q -s -p no:xdist tests/service/web/test_api_fuzz.py $(ARGS)
