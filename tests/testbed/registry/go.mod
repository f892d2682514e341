module testbed/registry

go 1.26.0
