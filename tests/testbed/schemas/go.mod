module testbed/schemas

go 1.26.0
