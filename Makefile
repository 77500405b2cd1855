# Front door for people and scripts. The work is done by cargo and by scripts/, which can be run by hand too.

PREFIX ?= /usr/local
# The directory that the dynamic loader puts for "$LIB", below /usr: lib/ARCH on Debian, lib64 on Fedora.
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=
CARGO ?= cargo
CARGO_TARGET_DIR ?= target
OUT ?= out
QUICK ?=

export CARGO CARGO_TARGET_DIR

bindir = $(DESTDIR)$(PREFIX)/bin
libdir = $(DESTDIR)$(LIBDIR)
preloaddir = $(libdir)/seekwire
privdir = $(DESTDIR)$(PREFIX)/lib/seekwire
includedir = $(DESTDIR)$(PREFIX)/include
pkgconfigdir = $(libdir)/pkgconfig
mandir = $(DESTDIR)$(PREFIX)/share/man
bashdir = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
zshdir = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
fishdir = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
docdir = $(DESTDIR)$(PREFIX)/share/doc/seekwire
examplesdir = $(docdir)/examples
release = $(CARGO_TARGET_DIR)/release
version = $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)

# The name by which programs that are linked with the library ask for it.
soname = libseekwire.so.$(shell sed -n 's/^const ABI: u32 = \([0-9]*\);/\1/p' wire/preload/build.rs)

# What the command starts, as wire/cli/src/external_commands.rs has it.
programs = seekwire-demo seekwire-flow seekwire-lab seekwire-nic seekwire-slides
# Beside those that the programs write.
manuals = $(wildcard wire/man/*.[0-9])
# What the README of the documentation points at.
guides = $(addprefix flow/docs/,cluster.md filter-protocol.md pipelines.md) slides/docs/slides.md $(addprefix wire/docs/,limits.md operation.md virtual-machines.md)

.DEFAULT_GOAL := build
.PHONY: help build demo lab report book test test-all check t test-suites lint differential faults loom miri fuzz kernel vm kernel-lab kernel-kasan man completions install install-debug uninstall deb rpm tarball clean

help: ## Show these targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Variables: PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) OUT=$(OUT) QUICK=$(QUICK)"

build: ## Build the command, its other programs and the library, optimised
	scripts/deps build
	scripts/build

# Packages are installed while cargo compiles, unless sudo wants a password.
demo: ## Run real programs plain and accelerated; report in $(OUT)/demo
	scripts/deps build
	@if [ "$$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; then \
		scripts/deps demo & packages=$$!; scripts/build demo; built=$$?; wait $$packages && exit $$built; \
	else \
		scripts/deps demo && scripts/build demo; \
	fi
	@[ ! -x $(release)/seekwire-slides ] || scripts/slide >/dev/null || echo "without slide tiles: no slide could be fetched"
	$(release)/seekwire demo --out $(OUT)/demo

lab: ## Run all experiments into $(OUT)/lab; QUICK=1 takes about ten minutes
	scripts/deps lab
	$(MAKE) --no-print-directory build
	$(release)/seekwire lab run all $(if $(QUICK),--quick) --out $(OUT)/lab

report: $(release)/seekwire $(release)/seekwire-lab ## Join all results below $(OUT) into one site, $(OUT)/report
	$(release)/seekwire lab report $(OUT) --out $(OUT)/report

book: ## Make a book of all documents, $(CARGO_TARGET_DIR)/book (needs mdBook)
	scripts/book

test: ## Run the gates that a change is likely to break; ends with "N passed, N failed"
	scripts/deps test
	scripts/test

test-all: ## Run every gate in its long form, for hours; the result is in out/test-all/result.md
	scripts/deps test
	scripts/deps vm
	scripts/test --all

check: ## Formatting, clippy and the tests of the data path: two minutes after a change
	scripts/deps check
	scripts/test fmt clippy inner

t: ## Run one package's tests: P=preload, and T=name for those whose names contain it; P=end_to_end for real programs
	scripts/t $(P) $(T)

test-suites: ## Run other projects' suites, SUITES="a b", by MODES=a,b, and put their part into wire/docs/compatibility.md
	$(CARGO) build --release --locked --package seekwire-suites --package seekwire-preload
	$(release)/seekwire-suites run $(SUITES) $(if $(MODES),--mode $(MODES)) --out $(OUT)/suites
	$(release)/seekwire-suites report --out $(OUT)/suites

lint: ## Formatting, clippy, rustdoc, dependency rules and shell scripts only
	scripts/test fmt prose features clippy fuzz_lint rustdoc shell deny

differential: ## Compare random programs, plain and accelerated, for HOURS=n; those that fail in $(OUT)/differential
	$(CARGO) build --release --locked --package seekwire-differential --package seekwire-preload
	QUICKACK=1 scripts/isolated $(release)/seekwire-differential run --hours $(or $(HOURS),1) --expected wire/differential/expected \
		--out $(OUT)/differential

faults: ## Kill, stop and starve one end of conversations at MOMENTS random moments each (default 1000), SEED=n
	scripts/faults

loom: ## Explore the interleavings of the index and doorbell protocols
	scripts/test loom

miri: ## Run what miri can interpret (needs a nightly toolchain)
	scripts/test miri

fuzz: ## Run each fuzz target for SECONDS_EACH seconds (default 60)
	scripts/fuzz $${SECONDS_EACH:-60}

kernel: ## Test the kernel module tcp_seek in virtual machines
	scripts/deps guest
	scripts/test kernel

kernel-kasan: ## Test the kernel module in a kernel with KASAN, lockdep and kmemleak
	scripts/deps kasan
	$(MAKE) --no-print-directory -C wire/kernel kernel-kasan

vm: ## Test programs between two virtual machines that share memory and a network, and between two of Xen
	scripts/deps vm
	$(CARGO) build --release --locked --package seekwire-cli --package seekwire-preload
	$(CARGO) test --release --locked --package seekwire-transport --test transport --no-run
	scripts/vm
	scripts/vm --xen

kernel-lab: ## Count the instructions that the kernel module saves; report in $(OUT)/lab/seek-module
	scripts/deps guest
	OUT=$(OUT) scripts/guest lab

man: $(addprefix $(release)/,seekwire $(programs)) ## Write the man pages to $(OUT)/man
	for program in seekwire $(programs); do $(release)/$$program generate man $(OUT)/man/man1 || exit; done
	for page in $(manuals); do install -D -m 644 $$page "$(OUT)/man/man$${page##*.}/$${page##*/}" || exit; done

completions: $(addprefix $(release)/,seekwire $(programs)) ## Write what bash, zsh and fish complete to $(OUT)/completions
	install -d $(OUT)/completions
	$(release)/seekwire generate completion bash >$(OUT)/completions/seekwire.bash
	$(release)/seekwire generate completion zsh >$(OUT)/completions/_seekwire
	$(release)/seekwire generate completion fish >$(OUT)/completions/seekwire.fish

# `make && sudo make install`: root often has no Rust toolchain, so installing does not build.
built = $(addprefix $(release)/,seekwire $(programs) libseekwire.so libseekwire.a)
# Also the program that is built where libzmq is.
installed = $(programs) $(notdir $(wildcard $(release)/seekwire-zeromq))
$(built):
	@echo "$@ is missing: run \`make build\` first" >&2; exit 1

install: $(built) ## Install under $(DESTDIR)$(PREFIX)
	install -d "$(bindir)" "$(preloaddir)" "$(privdir)" "$(pkgconfigdir)" "$(includedir)" "$(examplesdir)"
	install -d "$(bashdir)" "$(zshdir)" "$(fishdir)"
	scripts/install-stripped $(release)/seekwire "$(bindir)/seekwire"
	scripts/install-stripped $(release)/libseekwire.so "$(libdir)/$(soname)"
	ln -sf $(soname) "$(libdir)/libseekwire.so"
	ln -sf ../$(soname) "$(preloaddir)/$(soname)"
	ln -sfr "$(libdir)/$(soname)" "$(privdir)/libseekwire.so"
	for program in $(installed); do scripts/install-stripped $(release)/$$program "$(privdir)/$$program" || exit; done
	strip --strip-debug -o "$(libdir)/libseekwire.a" $(release)/libseekwire.a
	chmod 644 "$(libdir)/libseekwire.a"
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR:$(PREFIX)%=$${prefix}%)|; s|@VERSION@|$(version)|' wire/packaging/seekwire.pc.in >"$(pkgconfigdir)/seekwire.pc"
	chmod 644 "$(pkgconfigdir)/seekwire.pc"
	install -m 644 wire/include/seekwire.h flow/include/seekwire_filter.h "$(includedir)"
	install -m 644 LICENSE-MIT LICENSE-APACHE "$(docdir)"
	scripts/install-documents "$(docdir)" $(guides)
	install -m 644 wire/examples/seek.c flow/examples/checksum.c "$(examplesdir)"
	install -m 755 flow/examples/redact.py "$(examplesdir)"
	for program in seekwire $(programs); do $(release)/$$program generate man "$(mandir)/man1" || exit; done
	for page in $(manuals); do install -D -m 644 $$page "$(mandir)/man$${page##*.}/$${page##*/}" || exit; done
	$(release)/seekwire generate completion bash >"$(bashdir)/seekwire"
	$(release)/seekwire generate completion zsh >"$(zshdir)/_seekwire"
	$(release)/seekwire generate completion fish >"$(fishdir)/seekwire.fish"
	chmod 644 "$(bashdir)/seekwire" "$(zshdir)/_seekwire" "$(fishdir)/seekwire.fish"

install-debug: $(built) ## Install the debug symbols of what is installed, for debuggers and profilers
	scripts/install-stripped --debug $(release)/seekwire "$(bindir)/seekwire"
	scripts/install-stripped --debug $(release)/libseekwire.so "$(libdir)/$(soname)"
	for program in $(installed); do scripts/install-stripped --debug $(release)/$$program "$(privdir)/$$program" || exit; done

uninstall: ## Remove exactly what install and install-debug put there
	rm -f "$(bindir)/seekwire" "$(privdir)/libseekwire.so" "$(preloaddir)/$(soname)" "$(libdir)/libseekwire.so" "$(libdir)/$(soname)" "$(libdir)/libseekwire.a"
	rm -f $(foreach program,$(programs) seekwire-zeromq,"$(privdir)/$(program)")
	rm -f "$(bindir)/.debug/seekwire.debug" "$(libdir)/.debug/$(soname).debug"
	rm -f $(foreach program,$(programs) seekwire-zeromq,"$(privdir)/.debug/$(program).debug")
	-rmdir "$(bindir)/.debug" "$(libdir)/.debug" "$(privdir)/.debug" 2>/dev/null
	rm -f "$(pkgconfigdir)/seekwire.pc" "$(includedir)/seekwire.h" "$(includedir)/seekwire_filter.h"
	rm -f $(foreach example,seek.c checksum.c redact.py,"$(examplesdir)/$(example)")
	rm -f "$(docdir)/LICENSE-MIT" "$(docdir)/LICENSE-APACHE" "$(docdir)/README.md" $(foreach guide,$(guides),"$(docdir)/$(notdir $(guide))")
	rm -f "$(mandir)/man1/seekwire.1" "$(mandir)"/man1/seekwire-*.1
	rm -f "$(bashdir)/seekwire" "$(zshdir)/_seekwire" "$(fishdir)/seekwire.fish"
	for page in $(manuals); do rm -f "$(mandir)/man$${page##*.}/$${page##*/}"; done
	-rmdir "$(privdir)" "$(preloaddir)" "$(examplesdir)" "$(docdir)" 2>/dev/null

deb: $(built) ## Make Debian packages of what `make build` built, in $(OUT)/deb
	scripts/deps deb
	OUT=$(OUT) scripts/package deb

rpm: $(built) ## Make RPM packages of it, in $(OUT)/rpm
	scripts/deps rpm
	OUT=$(OUT) scripts/package rpm

tarball: $(built) ## Make an archive of it that installs itself, in $(OUT)/tarball
	OUT=$(OUT) scripts/package tarball

clean: ## Remove build products and reports
	$(CARGO) clean
	rm -rf $(OUT)
