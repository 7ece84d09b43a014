//go:build !linux

package main

import "errors"

// errLinuxOnly is never returned in practice: newStage fails on other systems.
var errLinuxOnly = errors.New("limits of other processes need Linux")

func limitMemory(int) error { return errLinuxOnly }
func limitFiles(int) error  { return errLinuxOnly }
func unlimit(int) error     { return errLinuxOnly }
