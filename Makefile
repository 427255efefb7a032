# SPDX-License-Identifier: Apache-2.0
# A thin layer over meson: make && sudo make install
PREFIX ?= /usr/local
DESTDIR ?=
# Where rdcpd.service goes, such as /etc/systemd/system; empty: nowhere.
UNITS ?=
BUILD ?= build/make
# Where `make' leaves links to the programs.
LINKS ?= .
PROGRAMS = rdcp rdsend rdrecv rdbench rdcheck rdcpd

all: $(BUILD)/build.ninja
	ninja -C "$(BUILD)"
	@if [ -w "$(LINKS)" ]; then for p in $(PROGRAMS); do \
		ln -sf "$$(realpath "$(BUILD)")/src/$$p" "$(LINKS)/$$p" || exit; done; fi

$(BUILD)/build.ninja:
	meson setup --buildtype=release "--prefix=$(PREFIX)" "-Dsystemd_unit_dir=$(UNITS)" -Dtests=false "$(BUILD)"

# What is built already is installed as it is, so that root builds nothing.
install: $(BUILD)/build.ninja
	meson configure "-Dprefix=$(PREFIX)" "-Dsystemd_unit_dir=$(UNITS)" "$(BUILD)"
	DESTDIR="$(DESTDIR)" meson install -C "$(BUILD)" --quiet

uninstall:
	ninja -C "$(BUILD)" uninstall

check:
	./check

clean:
	rm -rf "$(BUILD)"
	cd "$(LINKS)" && rm -f $(PROGRAMS)

.PHONY: all install uninstall check clean
