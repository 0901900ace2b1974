// Each image gets the time and memory that voxcast predicts for it, and more at each retry.
// The parameters are those of the demo; README.md says what to change.

params.images = 'data/images/*/anat/*_T1w.nii.gz' // file names must differ
params.app = 'ants_segment'
params.command = 'python -m voxcast_apps.ants_segment'
params.cluster = 'osc' // a file of conf/cluster
params.project = launchDir // a folder of `voxcast init`, or a clone
params.url = null // e.g. http://127.0.0.1:5001
params.out = 'results'

// One question for all images. With `url` the model is that of a server, see docs/requests.md.
process REQUESTS {
    executor 'local'

    input:
    path images

    output:
    path 'resources.csv'

    script:
    def url = params.url ? "--model '${params.url}'" : ''
    """
    voxcast recommend ${images} --project '${params.project}' --app '${params.app}' \\
        --cluster '${params.cluster}' ${url} --as csv --out resources.csv
    """
}

// The table has three attempts.
process PROCESS_IMAGE {
    cpus { row.cpus.toInteger() }
    time { row.get('time_min_' + task.attempt) + ' min' }
    memory { row.get('memory_mib_' + task.attempt) + ' MB' } // of 2^20 bytes, as Slurm's M
    queue { row.partition }
    errorStrategy { task.attempt <= 2 ? 'retry' : 'finish' }
    maxRetries 2
    publishDir params.out, mode: 'copy'

    input:
    tuple val(row), path(image)

    output:
    path "${row.sample}"

    script:
    """
    ${params.command} --image ${image} --out ${row.sample} --threads ${task.cpus}
    """
}

workflow {
    images = channel.fromPath(params.images, checkIfExists: true)
    REQUESTS(images.collect())
    rows = REQUESTS.out
        .splitCsv(header: true, quote: '"')
        .map { row -> tuple(file(row.image).name, row) }
    named_images = images.map { image -> tuple(image.name, image) }
    PROCESS_IMAGE(rows.join(named_images).map { name, row, image -> tuple(row, image) })
}
