# `make demo` tunes ResNet-18; `make test` is what must pass before a commit.

# The newest environment has the newest Python and JAX that run here, and no torch.  The oldest has
# Python 3.11 and jax 0.10.2, the last for it, and torch, for the models that need it.
PYTHON := .venv/bin/python
OLDEST := .venv-oldest/bin
ENVIRONMENT := .ci/environment .ci/interpreter pyproject.toml constraints.txt constraints-oldest.txt
DEMO_DB := build/demo.db

# The suite starts hundreds of processes, which would compile every module anew where a variable of
# the environment forbids to keep what was compiled: targets that run it do without that variable.
KEEPING_MODULES := env -u PYTHONDONTWRITEBYTECODE
# Tests of a file stay in one process, which has what they share, until the other one has nothing left.
TWO_AT_ONCE := -n 2 --dist worksteal

# What `make bench` tunes and compares with the default, and for how long each.
PROGRAMS := mlp.py:model resnet18.py:model resnet18.py:frozen
BUDGET := 10m

# Trials of an operator for `make bench-operators`, time of a model, races of a search.
TRIALS := 200
SECONDS := 300
SEEDS := 5

# Schedules of each space, from anywhere in it, that `make test-aot` compiles beside the first ones.
AOT_CONFIGS := 3

# Files and kills of `make hostile`; another seed makes other files.
MUTATIONS := 2000
KILLS := 50
SEED := 0

# What TVM searches for `make bench-peers`, and by how many trials, as hlotune does then.
TVM_CASES := gemm_1024 C6 gemm_128x768x3072
TVM_TRIALS := 128

.PHONY: setup setup-oldest demo test suite test-oldest test-torch suite-torch test-browser test-aot test-frameworks lint types types-oldest slow docs bench bench-operators bench-kernels bench-peers bench-search \
  bench-columns bench-busy bench-defaults bench-tuner hostile device bench-models bench-eval dataset curves model performance bench-memory

setup: .venv/.installed
	@.venv/bin/tune --version

setup-oldest: .venv-oldest/.installed
	@$(OLDEST)/tune --version

.venv/.installed: $(ENVIRONMENT)
	.ci/environment .venv tune,onnx,report,optuna,dashboard 3.13 3.12 3.11
	touch $@

.venv-oldest/.installed: $(ENVIRONMENT)
	.ci/environment .venv-oldest tune,models,onnx,report,optuna,dashboard 3.11
	touch $@

demo: setup
	mkdir -p build
	rm -f $(DEMO_DB)*
	.venv/bin/tune run examples/resnet18.py:frozen --budget 2m --database $(DEMO_DB)
	.venv/bin/tune bench examples/resnet18.py:frozen --database $(DEMO_DB)
	.venv/bin/tune report examples/resnet18.py:frozen --database $(DEMO_DB) -o build/report.html
	@echo "the report of this run, for any browser: $(CURDIR)/build/report.html"

test: lint types
	$(MAKE) suite

suite: setup
	$(KEEPING_MODULES) $(PYTHON) -m pytest $(TWO_AT_ONCE) -m "not slow and not torch and not browser and not frameworks and not aot"

# The documentation as a site, build/docs/index.html, in an environment of its own.
docs: .venv-docs/.installed
	.venv-docs/bin/python -m sphinx -W --keep-going -q docs build/docs
	@echo "the documentation, for any browser: $(CURDIR)/build/docs/index.html"

.venv-docs/.installed: $(ENVIRONMENT)
	.ci/environment .venv-docs docs,tune,report 3.13 3.12
	touch $@

# Opens report and dashboard of a small run in headless Chromium; without a browser it fails.  As root, on
# Debian: apt-get install chromium.  Screenshots are in build/browser, references in tests/golden/.
test-browser: setup
	$(PYTHON) -m pytest -m "browser and not torch and not frameworks"

# Compiles kernels for GPUs and TPUs by the compilers of these devices, in an environment that has
# JAX's plug-ins for them; no device is needed.  AOT_CONFIGS more schedules of each space.
test-aot: .venv-aot/.installed
	JAX_PLATFORMS=cpu AOT_CONFIGS=$(AOT_CONFIGS) .venv-aot/bin/python -m pytest $(TWO_AT_ONCE) -m aot tests/aot

.venv-aot/.installed: $(ENVIRONMENT)
	.ci/environment .venv-aot tune,aot 3.13 3.12
	touch $@

# The whole suite in the oldest environment; `test-torch` runs there what CI does.
test-oldest: types-oldest
	$(KEEPING_MODULES) $(OLDEST)/python -m pytest $(TWO_AT_ONCE) -m "not slow and not browser and not frameworks and not aot"

test-torch: types-oldest
	$(MAKE) suite-torch

suite-torch: setup-oldest
	$(KEEPING_MODULES) $(OLDEST)/python -m pytest $(TWO_AT_ONCE) -m "not slow and (torch or smoke)"

# Programs of Keras, flax, equinox and haiku, and models that ONNX Runtime and OpenVINO run, in an
# environment of its own: these bring some thirty packages that nothing else needs.
test-frameworks: .venv-frameworks/.installed
	.venv-frameworks/bin/python -m pytest -m "frameworks and not torch"

.venv-frameworks/.installed: $(ENVIRONMENT)
	.ci/environment .venv-frameworks tune,onnx,rivals,frameworks 3.13 3.12
	touch $@

lint: setup
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

# Without torch its classes are of no known type; the oldest environment checks them.
types: setup
	$(PYTHON) -m mypy --allow-subclassing-any --no-warn-unused-ignores

types-oldest: setup-oldest
	$(OLDEST)/python -m mypy

slow: setup setup-oldest
	$(KEEPING_MODULES) $(PYTHON) -m pytest -m "slow and not torch"
	$(KEEPING_MODULES) $(OLDEST)/python -m pytest -m "slow and (torch or smoke)"

# The models that come with the package, from the recorded trials that do.
model: setup-oldest
	for model in trees treegru; do \
	  $(OLDEST)/tune model train --database tuning_logs/trials.jsonl.gz --model $$model \
	    -o costmodel/$$model.npz || exit 1; \
	done

bench: setup
	mkdir -p build
	for program in $(PROGRAMS); do \
	  .venv/bin/tune run examples/$$program --budget $(BUDGET) --database build/bench.db && \
	  .venv/bin/tune bench examples/$$program --database build/bench.db || exit 1; \
	done

# Each prints a table and keeps it in build/; `make performance` puts them into the pages of docs/.
bench-operators: setup
	rm -f build/operators.db*
	$(PYTHON) -m benchmarks.operators --name operators --weights constants --numerics strict \
	  --cache warm --cases 'C[1-9]' 'C1[0-2]' --trials $(TRIALS)
	$(PYTHON) -m benchmarks.operators --name algorithms --weights constants \
	  --cases C2 C6 C9 C12 --trials $(TRIALS)
	$(PYTHON) -m benchmarks.operators --name products --weights arguments --cache warm \
	  --cases gemm_512 gemm_1024 gemm_2048 --trials $(TRIALS)
	$(PYTHON) -m benchmarks.operators --name types --weights arguments --cache warm \
	  --cases gemm_1024_bf16 gemm_1024_int8 C6_bf16 C6_int8 --trials 64
	$(PYTHON) -m benchmarks.bandwidth
	$(PYTHON) -m benchmarks.waking

# Sets up other libraries under build/peers, and goes on where it was interrupted.  What TVM searches
# comes first, each case tuned alone: a run of several kernels counts the seconds of all.
bench-peers: setup setup-oldest
	$(PYTHON) -m benchmarks.peers.environments onnxruntime openvino tvm
	for case in $(TVM_CASES); do \
	  $(PYTHON) -m benchmarks.peers --cases $$case --tvm-trials $(TVM_TRIALS) \
	    --trials $(TVM_TRIALS) || exit 1; \
	done
	$(PYTHON) -m benchmarks.peers --trials $(TRIALS)
	$(PYTHON) -m benchmarks.peers.shortfalls
	$(PYTHON) -m benchmarks.peers.searches

bench-search: setup
	rm -f build/search.db*
	$(PYTHON) -m benchmarks.curves --seeds $(SEEDS) --numerics strict
	$(PYTHON) -m benchmarks.curves --seeds $(SEEDS)
	$(PYTHON) -m benchmarks.searchers
	$(PYTHON) -m benchmarks.awkward --seeds $(SEEDS)

# Kernels of programs as users write them against XLA and other libraries: by first candidates, and
# tuned for SECONDS each, where these are not 0.
# CASES are patterns of names; STOP is when no further case begins, and MISSING=1 takes only cases
# that were not measured.  Results are kept in docs/lab/results/; the table is of all.
bench-kernels: setup setup-oldest
	$(PYTHON) -m benchmarks.peers.environments onnxruntime openvino
	$(PYTHON) -m benchmarks.kernels $(if $(CASES),--cases $(CASES)) \
	  $(if $(SECONDS),--seconds $(SECONDS)) $(if $(STOP),--stop $(STOP)) \
	  $(if $(MISSING),--missing)

# What could be won by putting images into columns first.
bench-columns: setup
	rm -f build/columns.db*
	$(PYTHON) -m benchmarks.columns

# Tuning beside a process that spins on one processor, against tuning on the quiet machine.
bench-busy: setup
	rm -rf build/busy
	$(PYTHON) -m benchmarks.busy --seeds $$(seq 0 $$(($(SEEDS) - 1)))

# Whether defaults of kernels are timed as a user's process runs them.  Goes on where it stopped.
bench-defaults: setup
	$(PYTHON) -m benchmarks.defaults

bench-tuner: setup-oldest
	$(OLDEST)/python -m benchmarks.tuner_speed

# Where time and memory of a run on a large model go, phase by phase.
bench-memory: setup
	$(PYTHON) -m benchmarks.memory examples/vgg19.py:model --budget 60s

# Whole models against XLA, and six of them against other runtimes, each in an environment of its
# own: make bench-models MODELS="resnet18 unet" SECONDS=60; the names are in
# benchmarks/models/examples.py, and without MODELS it is all of them.  STOP is when no further model
# begins, and MISSING=1 takes only models that were not measured.  Results are kept in
# docs/lab/results/; the tables are of all.
bench-models: setup setup-oldest
	$(PYTHON) -m benchmarks.peers.environments onnxruntime openvino ncnn mnn litert zentorch
	$(PYTHON) -m benchmarks.models --seconds $(SECONDS) $(if $(MODELS),--models $(MODELS)) \
	  $(if $(STOP),--stop $(STOP)) $(if $(MISSING),--missing)

# What models make of recorded trials: its tables, and the chart, come into docs/models.md.
bench-eval: setup-oldest
	mkdir -p build
	$(OLDEST)/tune model eval --database tuning_logs/trials.jsonl.gz --seeds 3 \
	  --model random --model roofline --model mlp --model trees-rank --model trees-time \
	  --model treegru --model trees --model ensemble --plot docs/charts/models.svg \
	  --json > build/model_eval.json.part
	mv build/model_eval.json.part build/model_eval.json
	$(OLDEST)/tune model eval --database tuning_logs/trials.jsonl.gz \
	  --seeds 3 --hold-out families --model roofline --model trees \
	  --json > build/model_eval_families.json.part
	mv build/model_eval_families.json.part build/model_eval_families.json
	$(OLDEST)/python -m benchmarks.page

# Goes on from the file and where it stopped, in build/dataset.db.
dataset: setup
	$(PYTHON) -m benchmarks.dataset --export tuning_logs/trials.jsonl.gz

# Goes on where it stopped, in build/learning.db.
curves: setup-oldest
	$(OLDEST)/python -m benchmarks.learning --seeds 3

performance: setup
	$(PYTHON) -m benchmarks.page

# Reads damaged and forged files of every format, and kills runs and their workers: some minutes.
# It fails where a file crashes or hangs its reader, or a record is lost.
hostile: setup
	$(PYTHON) -m benchmarks.hostile --mutations $(MUTATIONS) --kills $(KILLS) --seed $(SEED)

# On a machine with a GPU, by its own Python: no set-up, no network, at most 8 minutes.  Results are
# appended to device.jsonl under $$OUT, or under build/device; what the file of results EARLIER holds
# is not measured again, and the cases that are furthest behind there come first.  CASES are patterns
# of names, the first ones first, SECONDS when to stop, PACE what part of its time each case gets.
device:
	python3 -m benchmarks.device $(if $(EARLIER),--earlier $(EARLIER)) $(if $(CASES),--cases $(CASES)) \
	  $(if $(SECONDS),--seconds $(SECONDS)) $(if $(PACE),--pace $(PACE))
