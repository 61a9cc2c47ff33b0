package agent

import (
	"fmt"
	"strings"
	"time"
)

// Texts for the model.
const (
	continueText = "Your answer was cut off. Continue exactly where it stopped and repeat nothing of it."
	nudgeText    = "Your last reply was empty. Answer now, in words."
	graceText    = "You have used all the steps you had for this task and can call no more tools. " +
		"Say what you found and did, and what is left to do."

	// unknownText is the observation of an unsafe call whose outcome nobody knows.
	unknownText     = "outcome unknown: the action may have happened; verify before repeating"
	interruptedText = "interrupted: the call did not finish"
	notStartedText  = "interrupted: the call was not started"
	cutCallText     = "not executed: your output was cut off while you wrote this call. " +
		"Write it again, shorter or in several calls."
	unavailableText = "no tool server answered; the call may be tried again later"
	blankName       = "not executed: the call names no tool"
	emptyPrompt     = "(empty message)"
)

// Texts for the user.
const (
	noAnswerText = "I have no answer to that. Please put it in other words."
	filteredText = "The provider of my model blocked this answer. Please put it in other words."
)

func unknownToolText(name string, names []string) string {
	if isBlank(name) {
		return blankName
	}
	return fmt.Sprintf("not executed: there is no tool %q. %s", name, available(names))
}

func available(names []string) string {
	if len(names) == 0 {
		return "No tools are available."
	}
	return "Available tools: " + strings.Join(names, ", ") + "."
}

func refusedText(err error) string { return "not executed: " + err.Error() }

func timeoutText(after time.Duration, unsafe bool) string {
	text := fmt.Sprintf("no result after %s", after)
	if unsafe {
		return text + "; " + unknownText
	}
	return text
}

func gaveUpText(asked []string, names []string) string {
	return fmt.Sprintf("Sorry, I could not finish this: I kept asking for tools that I do not have (%s). %s",
		strings.Join(asked, ", "), available(names))
}

func budgetText(steps int) string {
	return fmt.Sprintf("I reached my limit of steps for one message (%d) before I was done. "+
		"Write to me if I should go on.", steps)
}
