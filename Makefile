# Each target is one script under scripts/, which installs by apt what that target lacks (scripts/install says how).
.PHONY: demo test bench soak lint install
demo test bench soak lint:
	@scripts/$@
# DESTDIR and PREFIX say where to; the script of this name is for Debian packages.
install:
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" scripts/install-program
