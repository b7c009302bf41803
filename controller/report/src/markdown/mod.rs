//! `p3_summary.md`: the summary for people. Every text that came out of a trial is escaped: the page may be
//! shown in a browser.

mod caveats;
mod format;

use crate::model::{Condition, Fraction};
use crate::summary::{GuardrailStatus, Summary, TrialOutcome};
use caveats::caveats;
use format::{escape, headers, interval, number, percent_interval, scope, seconds, signed, table, wln};

/// The whole page.
pub(crate) fn markdown(summary: &Summary) -> String {
    let mut page = String::from("# Containment benchmark: summary\n\n");
    page.push_str(
        "`in_loop` runs each completion in the trainer's own process (the unprotected baseline), `rlox` in a \
         fresh sandbox. Rows marked *measured* come from this sweep; rows marked *published* are the \
         benchmark tutorial's own result and were **not measured here**.\n\n",
    );
    headline(&mut page, summary);
    parity(&mut page, summary);
    rewards(&mut page, summary);
    integrity(&mut page, summary);
    step_time(&mut page, summary);
    trials(&mut page, summary);
    missing(&mut page, summary);
    caveats(&mut page, summary);
    page
}

fn headline(page: &mut String, summary: &Summary) {
    page.push_str("## Runs survived\n\n");
    let fractions: Vec<Fraction> = summary.p3_headline.in_loop.iter().map(|(f, _)| *f).collect();
    let mut header = vec!["Runs survived".to_owned()];
    header.extend(fractions.iter().map(|f| format!("{f} %")));
    header.push("all".to_owned());
    let mut rows = Vec::new();
    for condition in Condition::ALL {
        let mut measured = vec![format!("`{condition}`, measured")];
        let scopes = fractions.iter().map(|&f| Some(f)).chain([None]);
        measured.extend(scopes.map(|scope| {
            let cell = summary.survival.iter().find(|c| c.condition == condition && c.fraction == scope);
            cell.filter(|cell| cell.total > 0).map_or("–".to_owned(), |cell| {
                format!("**{}/{}**{}", cell.survived, cell.total, percent_interval(cell.interval))
            })
        }));
        let mut published = vec![format!("`{condition}`, *published*")];
        published.extend(fractions.iter().map(|f| {
            let cell = summary.published.cell(condition, &f.to_string());
            cell.map_or("–".to_owned(), |[survived, total]| format!("*{survived}/{total}*"))
        }));
        published.push("–".to_owned());
        rows.push(measured);
        rows.push(published);
    }
    table(page, &header, rows);
    let published = &summary.published;
    wln(
        page,
        format_args!(
            "In brackets: 95 % Wilson intervals. Published: {}, {} steps, {} seeds.\n",
            published.hardware, published.steps, published.seeds
        ),
    );
}

fn parity(page: &mut String, summary: &Summary) {
    let (guardrail, parity) = (&summary.quality_parity_guardrail, &summary.parity);
    page.push_str("## Quality parity at 0 %\n\n");
    let meaning = match guardrail.status {
        GuardrailStatus::Met => "both conditions agree",
        GuardrailStatus::NotMet => "the conditions do not agree",
        GuardrailStatus::Incomplete => "a seed lacks a side, or there are too few pairs",
    };
    wln(page, format_args!("Status: **{}** ({meaning}).\n", guardrail.status.as_str()));
    let published = &summary.published;
    table(
        page,
        &headers(&["Final reward, mean over seeds", "`in_loop`", "`rlox`"]),
        [
            vec![
                "measured".to_owned(),
                number(guardrail.final_reward_in_loop),
                number(guardrail.final_reward_rlox),
            ],
            vec![
                "*published*".to_owned(),
                format!("*{}*", published.final_reward_in_loop),
                format!("*{}*", published.final_reward_rlox),
            ],
        ],
    );
    wln(
        page,
        format_args!(
            "- Paired difference, `rlox` less `in_loop`: {}{}; pairs: {}.",
            signed(parity.mean_difference),
            interval(parity.difference_interval),
            parity.pairs.len()
        ),
    );
    wln(
        page,
        format_args!(
            "- Pairs that agree by themselves: {} of {}{}.",
            parity.pairs_agreeing,
            parity.pairs.len(),
            if parity.seeds_without_pair.is_empty() {
                String::new()
            } else {
                format!("; seeds without a pair: {:?}", parity.seeds_without_pair)
            }
        ),
    );
    let stricter = match parity.equivalent_within_margin {
        Some(true) => "yes",
        Some(false) => "no",
        None => "cannot be said",
    };
    wln(
        page,
        format_args!(
            "- Stricter than the status needs: whole interval within ±{}: {stricter}.",
            summary.method.parity_margin
        ),
    );
    wln(page, format_args!("- Rule: {}.\n", summary.method.parity_rule));
}

fn rewards(page: &mut String, summary: &Summary) {
    page.push_str("## Rewards\n\n");
    table(
        page,
        &headers(&[
            "Condition",
            "Injected",
            "Step 1",
            "Survivors",
            "Final, all samples",
            "Final, model's own samples",
        ]),
        summary.rewards.iter().map(|cell| {
            vec![
                format!("`{}`", cell.condition),
                format!("{} %", cell.fraction),
                number(cell.first_reward),
                cell.survivors.to_string(),
                format!("{}{}", number(cell.final_reward), interval(cell.final_reward_interval)),
                format!("{}{}", number(cell.final_reward_clean), interval(cell.final_reward_clean_interval)),
            ]
        }),
    );
    wln(
        page,
        format_args!(
            "In brackets: 95 % bootstrap intervals over seeds ({} resamples, seed {}); none for fewer than two \
             survivors. *All samples* includes the adversarial ones, which a forged reward inflates and an \
             honest verdict of 0 deflates.\n",
            summary.method.bootstrap_resamples, summary.method.bootstrap_seed
        ),
    );
}

fn integrity(page: &mut String, summary: &Summary) {
    page.push_str("## Reward integrity and contagion\n\n");
    table(
        page,
        &headers(&[
            "Condition",
            "Adversarial samples",
            "Forged rewards",
            "Share",
            "Masked samples",
            "Contagion events",
            "Trials with contagion",
        ]),
        summary.reward_integrity.iter().map(|row| {
            vec![
                format!("`{}`", row.condition),
                row.injected_samples.to_string(),
                row.forged_rewards.to_string(),
                row.forged_share.map_or("–".to_owned(), |share| format!("{:.1} %", 100.0 * share)),
                row.masked_samples.to_string(),
                row.contagion_events.to_string(),
                row.trials_with_contagion.to_string(),
            ]
        }),
    );
    page.push_str(
        "A dead run stops counting where it died, so the counts of `in_loop` are lower bounds. Masked samples \
         got no verdict and were left out of the update; they are no reward of 0.\n\n",
    );
}

fn step_time(page: &mut String, summary: &Summary) {
    page.push_str("## Step time\n\n");
    let header = headers(&[
        "Condition",
        "Injected",
        "Steps",
        "Median",
        "99th percentile",
        "Longest",
        "Verification, median",
    ]);
    table(
        page,
        &header,
        summary.step_time.iter().map(|row| {
            vec![
                format!("`{}`", row.condition),
                scope(row.fraction),
                row.steps.to_string(),
                seconds(row.median_secs),
                seconds(row.p99_secs),
                seconds(row.max_secs),
                seconds(row.verify_median_secs),
            ]
        }),
    );
    table(
        page,
        &headers(&["`in_loop` ÷ `rlox`", "Median", "99th percentile"]),
        summary.step_time_ratio.iter().map(|row| {
            let times = |value: Option<f64>| value.map_or("–".to_owned(), |v| format!("{v:.2}×"));
            vec![scope(row.fraction), times(row.median), times(row.p99)]
        }),
    );
    page.push_str(
        "Completed steps only: the step in which a run hung or died was never logged, so the baseline's stalls \
         are understated.\n\n",
    );
}

fn trials(page: &mut String, summary: &Summary) {
    page.push_str("## Trials\n\n");
    table(
        page,
        &headers(&[
            "Trial",
            "Outcome",
            "Exit status",
            "Steps",
            "Wall",
            "Step 1 → final",
            "Contagion",
            "Reason",
        ]),
        summary.trials.iter().map(|line| {
            let count = |value: Option<u64>| value.map_or("–".to_owned(), |v| v.to_string());
            vec![
                format!("`{}`", line.trial),
                match line.outcome {
                    TrialOutcome::Survived => "survived",
                    TrialOutcome::Died => "**died**",
                    TrialOutcome::Unfinished => "unfinished",
                    TrialOutcome::Unusable => "unusable record",
                }
                .to_owned(),
                line.exit_status.as_ref().map_or("–".to_owned(), |s| escape(&s.to_string())),
                format!("{}/{}", count(line.steps_completed), count(line.max_steps)),
                line.wall_secs.map_or("–".to_owned(), |secs| format!("{secs:.0} s")),
                format!("{} → {}", number(line.first_reward), number(line.final_reward)),
                count(line.contagion_events),
                line.reason.as_deref().map_or(String::new(), escape),
            ]
        }),
    );
    for line in &summary.trials {
        let mut notes = Vec::new();
        if line.metrics_garbage_lines > 0 {
            notes.push(format!("{} lines that are no step", line.metrics_garbage_lines));
        }
        if line.metrics_truncated_tail {
            notes.push("last line torn".to_owned());
        }
        if line.metrics_cut {
            notes.push("larger than is read".to_owned());
        }
        notes.extend(line.metrics_problem.clone());
        if !notes.is_empty() {
            wln(page, format_args!("- `{}/metrics.jsonl`: {}.", line.trial, notes.join(", ")));
        }
    }
    page.push('\n');
}

fn missing(page: &mut String, summary: &Summary) {
    page.push_str("## Missing trials\n\n");
    if summary.missing_trials.is_empty() {
        page.push_str("None: every trial of the grid ended and was judged.\n\n");
        return;
    }
    page.push_str("In no count above:\n\n");
    for missing in &summary.missing_trials {
        wln(page, format_args!("- `{}`: {}", missing.trial, escape(&missing.why)));
    }
    page.push('\n');
}
