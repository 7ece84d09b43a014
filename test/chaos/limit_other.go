//go:build !linux

package main

import "errors"

// errLinuxOnly: newStage refuses other systems before a fault is drawn.
var errLinuxOnly = errors.New("limits of other processes need Linux")

func limitMemory(int) error { return errLinuxOnly }
func limitFiles(int) error  { return errLinuxOnly }
func unlimit(int) error     { return errLinuxOnly }
