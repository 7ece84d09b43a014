package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace/internal/servicefile"
)

const configSchemaLong = `Print the JSON Schema (draft 2020-12) of service files, for completion and checks in
an editor. "servetrace config check" checks more: the values of settings, and the form
of plugins' configurations.`

const configSchemaExample = `  servetrace config schema > service-file.schema.json`

func newConfigSchema() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of service files",
		Long:    configSchemaLong,
		Example: configSchemaExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := servicefile.Schema()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
			return err
		},
	}
}
