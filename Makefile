# Every target makes its own set-up (setup/venv) from Python 3.11+ and nothing else; a second run does none.
.DEFAULT_GOAL := help
.PHONY: help venv demo test check integration bench wheel docs notebooks site lock

help:              ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile | expand -t 20
venv:              ## .venv with the locked packages (every other target does this first)
	@setup/venv
demo: venv         ## a real PostgreSQL, a live workload, the mirror, and the proof that every mark adds up
	@.venv/bin/headrace demo
test: venv         ## every guarantee once, on real servers and a real Spark
	@setup/test $(if $(BARE),--bare)
check: venv        ## format, lint, types, layers, unit, laws, cases: under a minute
	@setup/check
integration: venv  ## the full numbers and the version matrix (PART=folder or expression, SEED=number)
	@PART='$(PART)' SEED='$(SEED)' setup/integration
bench: venv        ## every figure beside its peer, in one run
	@.venv/bin/python -m bench
wheel: venv        ## the wheel, in dist/
	@rm -rf build && .venv/bin/python -m build --wheel --no-isolation
docs: venv         ## the pages that are made from the source
	@for page in assemble_errors draw_states assemble_metrics assemble_commands assemble_figures; do .venv/bin/python setup/$$page.py || exit 1; done
notebooks: venv    ## the notebooks of examples/ run again, with what their cells show (minutes)
	@.venv/bin/python -m setup.run_notebooks
site: venv         ## the documents as a site, in build/site; a dead link is an error
	@.venv/bin/python setup/build_site.py
lock: venv         ## requirements/dev.lock anew from pyproject.toml (some minutes)
	@setup/lock
