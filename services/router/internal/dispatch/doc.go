// Package dispatch rings the doorbells of runs and deliveries.
//
// Everything here may be lost: the session and outbox rows are the truth, and the sweeper rings again what nobody
// answered. So nothing here returns an error to the work that made the doorbell; what fails is counted and logged.
package dispatch
