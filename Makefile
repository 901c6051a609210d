# Each verb is one or two lines here; the work is done by the scripts of tools/ and lab/.
SHELL := /bin/bash
NODE ?= spark1
PROMPT ?= Four small machines
LAB_API ?= http://10.77.0.11:8000
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv lock collections docs lint unit lab-up lab-down lab-ssh demo lab-vm lab-vm-down test test-containers test-full test-vm test-vm-ci clean

help:  ## list these verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: .venv/complete  ## make .venv with everything that requirements.lock lists

.venv/complete: requirements.lock tools/venv
	tools/venv .venv && touch $@

lock: venv  ## pin the newest Python packages that pyproject.toml allows in requirements.lock
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --custom-compile-command "make lock" --group dev pyproject.toml --output-file requirements.lock

collections: venv  ## put the collections of requirements.yml under collections/
	tools/collections

docs: venv  ## write the README of each role, the page of all checks and the page of all profiles
	tools/role_docs && tools/check_docs && tools/profile_docs

lint: collections  ## run every static check
	tools/lint

unit: collections  ## run the unit tests: seconds, no lab
	pytest

lab-up: collections  ## build and start the four lab nodes
	lab/prepare && lab/build
	lab/run ansible-playbook -i inventory/lab lab/create.yml

lab-down: collections  ## stop and remove the lab nodes; what was built stays cached
	lab/run ansible-playbook -i inventory/lab lab/destroy.yml

lab-ssh:  ## open a shell on a lab node: make lab-ssh NODE=spark2
	lab/run ssh -F lab/.state/ssh_config $(NODE)

lab-vm: collections  ## build and start the four virtual machines
	lab/prepare vm && lab/vm/build
	lab/run ansible-playbook -i inventory/lab-vm lab/vm/create.yml

lab-vm-down: collections  ## switch the virtual machines off and remove them
	lab/run ansible-playbook -i inventory/lab-vm lab/vm/destroy.yml

demo: lab-up  ## provision the lab as a user would, then ask the model: make demo PROMPT="..."
	lab/run ansible-playbook site.yml -i inventory/lab
	lab/run tools/ask --url $(LAB_API) "$(PROMPT)"

test: lint unit test-containers test-vm-ci  ## all that continuous integration runs

test-containers: collections
	lab/prepare && lab/build
	pytest tests/engine
	for scenario in headless tuning fabric admission spark4; do lab/run molecule test -s $$scenario || exit; done

test-full: test  ## test, then what takes longer: weights, the image, killed ranks of both executors, updates
	for scenario in weights image serving-mp serving-ray updates; do lab/run molecule test -s $$scenario || exit; done

test-vm: collections  ## what containers cannot prove: RDMA, reboots and power cuts on four virtual machines
	lab/prepare vm && lab/vm/build
	for scenario in lab-vm tuning-vm fabric-vm weights-vm spark4-vm powercut-vm updates-vm; do \
	  lab/run molecule test -s $$scenario || exit; done

test-vm-ci: collections  ## of test-vm what fits into 15 minutes, and say what does not
	lab/prepare vm && lab/vm/build
	lab/run molecule test -s lab-vm
	@echo "test-vm-ci left out for time: tuning-vm, fabric-vm, weights-vm, spark4-vm, powercut-vm and updates-vm," \
	  "which make test-vm runs"

clean:  ## remove .venv and the downloaded collections; the lab's cache stays
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .ansible
	git clean -fdXq collections
