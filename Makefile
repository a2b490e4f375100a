# Each target is one script under scripts/, which installs by apt what that target lacks (scripts/install says how).
.PHONY: demo test bench soak lint
demo test bench soak lint:
	@scripts/$@
