// Package render turns the Markdown of an answer into what chat platforms show: [Render] writes it in a [Dialect], [Split]
// cuts it into messages that stand alone, [Plain] is the dialect without markup.
//
// All functions are pure and safe for concurrent use.
package render
