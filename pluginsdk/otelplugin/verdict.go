package otelplugin

// final tells whether err would end a batch for good. That is not known yet, so
// every error means that the batch is sent again, which loses nothing.
func final(error) bool { return false }

// rejectedBy reads a pluginsdk.Partial, likewise.
func rejectedBy(error) (rejected int, message string, ok bool) { return 0, "", false }
