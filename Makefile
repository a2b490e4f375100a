# Each target is one script under scripts/, which installs by apt what that target lacks (scripts/install
# says how).
.PHONY: demo test test-unit test-interop interop bench soak lint conformance install
demo test interop bench soak lint:
	@scripts/$@
# The two parts of make test.
test-unit test-interop:
	@scripts/test $(@:test-%=%)
# TESTS names files or numbers of Open vSwitch's test suite: make conformance TESTS="ofproto-dpif 1091-1099".
conformance:
	@scripts/conformance $(TESTS)
# DESTDIR and PREFIX say where to; the script of this name is for Debian packages.
install:
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" scripts/install-program
